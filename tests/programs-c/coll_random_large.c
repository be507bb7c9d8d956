/* The random collectives by the functions for large counts.
 * ranks: 1 2 3 5
 * timeout: 240
 */
#define LARGE
#include "coll_random.c"
