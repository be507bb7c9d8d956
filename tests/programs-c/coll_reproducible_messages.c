/* Reproducible reductions by messages alone.
 * ranks: 2 3 5 7
 * timeout: 180
 * env: WHIMBREL_REPRODUCIBLE=on WHIMBREL_COLLECTIVE_SLOTS=off
 */
#include "coll_reproducible.h"
