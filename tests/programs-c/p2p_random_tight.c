/* The storm with hardly any room: small rings, few credits.
 * ranks: 1 3 7
 * env: WHIMBREL_UNEXPECTED_MAX=4096 WHIMBREL_RING_MEMORY=65536
 * args: 777
 * timeout: 120
 */
#include "p2p_random.c"
