/* The same where ranks of one host reach each other by datagrams alone: none shares memory with another, and the split must not say so.
 * ranks: 1 2 3 4
 * env: WHIMBREL_FABRIC=udp
 */
#define ALONE
#include "win_shared.c"
