/* The same with datagrams.
 * ranks: 1 2
 * env: WHIMBREL_FABRIC=udp
 */
#include "win_errors.c"
