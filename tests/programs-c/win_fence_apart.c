/* The same where processes of one host may not copy to and from each other.
 * ranks: 2 3
 * env: WHIMBREL_SINGLE_COPY=off
 */
#include "win_fence.c"
