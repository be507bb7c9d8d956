/* The same with datagrams.
 * ranks: 1 2 3
 * timeout: 60
 * env: WHIMBREL_FABRIC=udp
 */
#include "win_many.c"
