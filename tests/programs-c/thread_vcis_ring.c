/* The same where processes may not copy from each other: long messages need their sender's progress.
 * ranks: 2 3
 * cflags: -pthread
 * env: WHIMBREL_SINGLE_COPY=off
 * timeout: 120
 */
#include "thread_vcis.c"
