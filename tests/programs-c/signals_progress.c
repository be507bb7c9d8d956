/* The same with a progress thread.
 * ranks: 2
 * cflags: -pthread
 * env: WHIMBREL_PROGRESS=thread
 * timeout: 60
 */
#include "signals.c"
