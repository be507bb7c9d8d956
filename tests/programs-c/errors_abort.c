/* MPI_ERRORS_ABORT on a communicator: an error ends its processes, and names function, communicator and rank.
 * ranks: 1 2
 * status: nonzero
 * output: rank 0: MPI_Send failed on pair: .*MPI_ERR_RANK
 */
#include "world.h"

int main(int argc, char **argv)
{
    MPI_Comm pair;
    MPI_Errhandler handler;
    int value = 0;
    begin(&argc, &argv);
    OK(MPI_Comm_dup(MPI_COMM_WORLD, &pair));
    OK(MPI_Comm_set_name(pair, "pair"));
    OK(MPI_Comm_set_errhandler(pair, MPI_ERRORS_ABORT));
    OK(MPI_Comm_get_errhandler(pair, &handler));
    CHECK(handler == MPI_ERRORS_ABORT);
    OK(MPI_Errhandler_free(&handler));
    if (rank == 0)
        MPI_Send(&value, 1, MPI_INT, size, 0, pair);
    else
        MPI_Recv(&value, 1, MPI_INT, 0, 0, pair, MPI_STATUS_IGNORE);
    /* Not reached. */
    return 0;
}
