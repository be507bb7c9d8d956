/* The random topologies by the functions for large counts.
 * ranks: 1 2 5
 * timeout: 120
 */
#define LARGE
#include "topology_random.c"
