/* Threads that call MPI in turns, under MPI_THREAD_SERIALIZED.
 * ranks: 1 2 3
 * cflags: -pthread
 */
#define LEVEL MPI_THREAD_SERIALIZED
#include "thread_funneled.c"
