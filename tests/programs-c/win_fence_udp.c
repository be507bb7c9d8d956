/* The same with datagrams.
 * ranks: 1 2 3 4
 * env: WHIMBREL_FABRIC=udp
 */
#include "win_fence.c"
