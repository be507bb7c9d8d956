/* The same with datagrams, where the target's own thread answers.
 * ranks: 2
 * env: WHIMBREL_FABRIC=udp
 * args: accumulates
 * timeout: 60
 */
#include "win_computing.c"
