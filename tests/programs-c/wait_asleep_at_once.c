/* Waiting without any polling.
 * ranks: 2 5
 * env: WHIMBREL_SPIN=0 WHIMBREL_YIELD=0
 * timeout: 120
 */
#include "wait_asleep.c"
