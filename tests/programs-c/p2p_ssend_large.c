/* Synchronous sends by the functions for large counts.
 * ranks: 2
 */
#define LARGE
#include "p2p_ssend.c"
