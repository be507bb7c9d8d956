/* Order where every message goes as a header first.
 * ranks: 2 4
 * env: WHIMBREL_EAGER_MAX=0
 * timeout: 120
 */
#include "p2p_order.c"
