/* A crash within an MPI call is told as that call, with the program's own functions in a backtrace.
 * ranks: 1 2
 * crash: SIGSEGV
 * status: 139
 * cflags: -g -O0
 * output: (?s)rank \d+: signal 11 \(SIGSEGV\) at address 0x10 in MPI_Pack;.* wrong_call at .*crash_call.c:\d+.*was killed by signal 11 \(SIGSEGV\) in MPI_Pack
 */
#include "check.h"

__attribute__((noinline)) static void wrong_call(void) {
    char packed[64];
    int position = 0;
    MPI_Pack((void *)16, 4, MPI_INT, packed, sizeof packed, &position, MPI_COMM_WORLD);
}

int main(int argc, char **argv) {
    int rank, size;
    OK(MPI_Init(&argc, &argv));
    OK(MPI_Comm_rank(MPI_COMM_WORLD, &rank));
    OK(MPI_Comm_size(MPI_COMM_WORLD, &size));
    if (rank == size - 1)
        wrong_call();
    OK(MPI_Barrier(MPI_COMM_WORLD));
    OK(MPI_Finalize());
    return 0;
}
