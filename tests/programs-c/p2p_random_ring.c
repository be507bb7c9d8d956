/* The storm through the ring alone.
 * ranks: 3 7
 * env: WHIMBREL_SINGLE_COPY=off
 * args: 777
 * timeout: 120
 */
#include "p2p_random.c"
