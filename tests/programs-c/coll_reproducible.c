/* Reproducible reductions through slots where they are short.
 * ranks: 2 3 5 7
 * timeout: 180
 * env: WHIMBREL_REPRODUCIBLE=on
 */
#include "coll_reproducible.h"
