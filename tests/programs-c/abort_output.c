/* What a rank has printed but not flushed is there after MPI_Abort, whose code is the job's status.
 * ranks: 1 2 3
 * status: 3
 * output: (?s)printed and not flushed
 */
#include "check.h"

int main(int argc, char **argv) {
    int rank, size;
    OK(MPI_Init(&argc, &argv));
    OK(MPI_Comm_rank(MPI_COMM_WORLD, &rank));
    OK(MPI_Comm_size(MPI_COMM_WORLD, &size));
    /* The buffer is larger than the text whoever reads it. */
    static char buffer[4096];
    setvbuf(stdout, buffer, _IOFBF, sizeof buffer);
    if (rank == size - 1) {
        printf("printed and not flushed");
        MPI_Abort(MPI_COMM_WORLD, 3);
    }
    OK(MPI_Barrier(MPI_COMM_WORLD));
    OK(MPI_Finalize());
    return 0;
}
