/* Persistent requests by the functions for large counts.
 * ranks: 1 2
 */
#define LARGE
#include "p2p_persistent.c"
