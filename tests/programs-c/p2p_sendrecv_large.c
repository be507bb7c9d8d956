/* Sendrecv and Sendrecv_replace by the functions for large counts.
 * ranks: 1 2 3
 */
#define LARGE
#include "p2p_sendrecv.c"
