/* The same with datagrams.
 * ranks: 1 2 3
 * env: WHIMBREL_FABRIC=udp
 */
#include "win_empty.c"
