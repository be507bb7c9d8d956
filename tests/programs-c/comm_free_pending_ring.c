/* The same where processes may not copy from each other.
 * ranks: 2
 * env: WHIMBREL_SINGLE_COPY=off
 * timeout: 60
 */
#include "comm_free_pending.c"
