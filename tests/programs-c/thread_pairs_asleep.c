/* Threads that sleep at once.
 * ranks: 2
 * env: WHIMBREL_SPIN=0 WHIMBREL_YIELD=0
 * cflags: -pthread
 * timeout: 120
 */
#include "thread_pairs.c"
