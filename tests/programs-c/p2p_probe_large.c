/* Probes and matched receives by the functions for large counts.
 * ranks: 2 3
 */
#define LARGE
#include "p2p_probe.c"
