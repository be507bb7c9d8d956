/* The same with no copying between processes.
 * ranks: 2
 * cflags: -pthread
 * env: WHIMBREL_SINGLE_COPY=off
 * timeout: 240
 */
#include "thread_requests.c"
