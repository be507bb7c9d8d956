/* The same where targets that wait do short calls, also with more ranks than cores.
 * ranks: 2 3 4
 * env: WHIMBREL_REQUEST_LINES=always
 */
#include "win_random.c"
