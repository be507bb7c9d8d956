/* Every size through the ring, as where no process may read another's memory.
 * ranks: 2
 * env: WHIMBREL_SINGLE_COPY=off
 * timeout: 120
 */
#include "p2p_sizes.c"
