/* WHIMBREL_BACKTRACE=off: a crash prints no backtrace.
 * ranks: 2
 * crash: SIGABRT
 * status: 134
 * env: WHIMBREL_BACKTRACE=off
 * output: (?s)\A(?!.*newest first).*SIGABRT
 */
#include "check.h"

int main(int argc, char **argv) {
    int rank;
    OK(MPI_Init(&argc, &argv));
    OK(MPI_Comm_rank(MPI_COMM_WORLD, &rank));
    if (rank == 1)
        abort();
    OK(MPI_Barrier(MPI_COMM_WORLD));
    OK(MPI_Finalize());
    return 0;
}
