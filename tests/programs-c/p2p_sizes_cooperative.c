/* Every size with the sender helping to copy as early as it may.
 * ranks: 2
 * env: WHIMBREL_COOPERATIVE_MIN=65536
 * timeout: 120
 */
#include "p2p_sizes.c"
