/* The same where nothing is mapped.
 * ranks: 2
 * timeout: 120
 * env: WHIMBREL_MAP_MEMORY=off
 */
#define WITHOUT_BASES
#include "alloc_mem.c"
