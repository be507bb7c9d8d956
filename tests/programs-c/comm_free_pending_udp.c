/* The same with datagrams.
 * ranks: 2
 * env: WHIMBREL_FABRIC=udp
 * timeout: 60
 */
#include "comm_free_pending.c"
