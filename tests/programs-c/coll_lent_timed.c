/* Long collectives whose members lend where timed calls say that it is faster, and try both ways now and then.
 * ranks: 2 4
 * timeout: 240
 */
#include "coll_lent.c"
