/* MPI_Init_thread with MPI_THREAD_SINGLE.
 * ranks: 1 2
 * cflags: -pthread
 */
#define LEVEL MPI_THREAD_SINGLE
#include "thread_funneled.c"
