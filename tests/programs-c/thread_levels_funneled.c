/* The same at MPI_THREAD_FUNNELED.
 * ranks: 1 2
 * cflags: -pthread -DLEVEL=1
 * timeout: 60
 */
#include "thread_levels.c"
