/* The same where nothing is under way: whoever gathers the report, or meets the others, finds out.
 * ranks: 3
 * env: WHIMBREL_FABRIC=udp WHIMBREL_PEER_TIMEOUT=700 WHIMBREL_REPORT=on
 * status: nonzero
 * output: rank [12] has finalized\n(.*\n)*rank [12] has finalized
 */
#define NOTHING_SENT
#include "departed.c"
