/* An error under MPI_ERRORS_ARE_FATAL ends the job with one line that names the call, the rank and the argument.
 * ranks: 1 3
 * status: nonzero
 * output: rank [0-9]+.*MPI_Send.*MPI_ERR_RANK
 */
#include "check.h"

int main(int argc, char **argv) {
    int value = 0, size, rank;
    OK(MPI_Init(&argc, &argv));
    OK(MPI_Comm_size(MPI_COMM_WORLD, &size));
    OK(MPI_Comm_rank(MPI_COMM_WORLD, &rank));
    if (rank == size - 1) {
        MPI_Send(&value, 1, MPI_INT, 4000, 0, MPI_COMM_WORLD);
    }
    OK(MPI_Barrier(MPI_COMM_WORLD));
    OK(MPI_Finalize());
    return 0;
}
