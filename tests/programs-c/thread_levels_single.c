/* The same at MPI_THREAD_SINGLE.
 * ranks: 1 2
 * cflags: -pthread -DLEVEL=0
 * timeout: 60
 */
#include "thread_levels.c"
