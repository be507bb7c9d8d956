/* Long collectives whose members read each other's memory, around the lengths where that begins and where pieces and slices end.
 * ranks: 2 3 4 7
 * timeout: 240
 * env: WHIMBREL_COLLECTIVE_LENDING=always
 */
#define ROUNDS 600
#define LONGS_MAX 50000
/* 16 KiB, where lending begins, 128 KiB, which is read at once, what fits into a rank's room, and slices of these; a few shorter ones between. */
#define AROUND {2048, 2048, 4096, 6144, 8192, 16384, 16384, 32768, 32768, 49152, 5, 300}
#include "coll_long.h"
