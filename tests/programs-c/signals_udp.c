/* The same with datagrams.
 * ranks: 2
 * cflags: -pthread
 * env: WHIMBREL_FABRIC=udp
 * timeout: 60
 */
#include "signals.c"
