/* Long collectives in which nothing is lent: broadcasts that pass in pieces through a window that all others read, collectives in which all bring equally much
 * round by round, and reductions in which each rank combines a slice, around the lengths where these begin, of pieces, windows, rounds and slices.
 * ranks: 3 4 5 7
 * timeout: 240
 * processors: 8
 * env: WHIMBREL_COLLECTIVE_LENDING=off
 */
#define ROUNDS 200
#define LONGS_MAX 150000
/* 8 KiB, 64 KiB and a third of it, pieces of 16 KiB, what a rank brings whole (144, 204, 256 and 340 KiB among 7 to 3), divided among the ranks or not, and a few
 * of these. */
#define AROUND {1024, 2048, 2731, 4096, 6144, 8192, 10880, 18432, 26112, 32768, 43520, 69632, 98304, 131072, 5, 300}
#include "coll_long.h"
