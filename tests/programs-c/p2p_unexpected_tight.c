/* The flood with hardly any room.
 * ranks: 3
 * env: WHIMBREL_UNEXPECTED_MAX=4096 WHIMBREL_RING_MEMORY=65536
 * timeout: 120
 */
#include "p2p_unexpected.c"
