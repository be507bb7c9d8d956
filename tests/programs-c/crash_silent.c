/* A program that handles a signal itself keeps its handler, and the library prints no backtrace.
 * ranks: 2
 * status: 42
 * output: (?s)\A(?!.*newest first).*own handler
 */
#include "check.h"
#include <signal.h>
#include <unistd.h>

static void own(int number) {
    (void)number;
    if (write(2, "own handler\n", 12) < 0)
        _exit(1);
    _exit(42);
}

int main(int argc, char **argv) {
    int rank;
    signal(SIGSEGV, own);
    OK(MPI_Init(&argc, &argv));
    OK(MPI_Comm_rank(MPI_COMM_WORLD, &rank));
    OK(MPI_Barrier(MPI_COMM_WORLD));
    if (rank == 1)
        raise(SIGSEGV);
    OK(MPI_Barrier(MPI_COMM_WORLD));
    OK(MPI_Finalize());
    return 0;
}
