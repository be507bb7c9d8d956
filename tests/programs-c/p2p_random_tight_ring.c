/* The storm with hardly any room, and through the ring alone.
 * ranks: 3
 * env: WHIMBREL_UNEXPECTED_MAX=4096 WHIMBREL_RING_MEMORY=65536 WHIMBREL_SINGLE_COPY=off
 * args: 777
 * timeout: 120
 */
#include "p2p_random.c"
