/* An error after MPI_Finalize names rank and function, and ends the program with a status other than 0.
 * ranks: 2
 * status: nonzero
 * output: rank 1: MPI_Send failed: .*MPI has been finalized
 */
#include "check.h"

int main(int argc, char **argv)
{
    int rank, value = 0;
    OK(MPI_Init(&argc, &argv));
    OK(MPI_Comm_rank(MPI_COMM_WORLD, &rank));
    OK(MPI_Finalize());
    if (rank == 1)
        MPI_Send(&value, 1, MPI_INT, 0, 0, MPI_COMM_WORLD);
    return 0;
}
