/* The same with datagrams.
 * ranks: 1 2 3
 * timeout: 120
 * env: WHIMBREL_FABRIC=udp
 * cflags: -pthread
 */
#include "win_threads.c"
