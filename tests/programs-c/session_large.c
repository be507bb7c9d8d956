/* Sessions by the functions for large counts.
 * ranks: 1 2
 */
#define LARGE
#include "session.c"
