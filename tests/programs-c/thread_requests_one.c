/* The same with one engine for all communicators.
 * ranks: 2
 * cflags: -pthread
 * env: WHIMBREL_VCIS=1
 * timeout: 240
 */
#include "thread_requests.c"
