/* Communication with MPI_PROC_NULL succeeds at once and changes nothing.
 * ranks: 1 3
 */
#include "world.h"

static void nothing(const MPI_Status *status)
{
    int count;
    OK(MPI_Get_count(status, MPI_INT, &count));
    CHECK(status->MPI_SOURCE == MPI_PROC_NULL && status->MPI_TAG == MPI_ANY_TAG && count == 0);
}

int main(int argc, char **argv)
{
    begin(&argc, &argv);
    int value = 5, other = 6;
    MPI_Request request;
    MPI_Status status;

    OK(MPI_Send(&value, 1, MPI_INT, MPI_PROC_NULL, 1, MPI_COMM_WORLD));
    OK(MPI_Ssend(&value, 1, MPI_INT, MPI_PROC_NULL, 1, MPI_COMM_WORLD));
    OK(MPI_Rsend(&value, 1, MPI_INT, MPI_PROC_NULL, 1, MPI_COMM_WORLD));
    OK(MPI_Recv(&value, 1, MPI_INT, MPI_PROC_NULL, 1, MPI_COMM_WORLD, &status));
    nothing(&status);
    OK(MPI_Irecv(&value, 1, MPI_INT, MPI_PROC_NULL, MPI_ANY_TAG, MPI_COMM_WORLD, &request));
    OK(MPI_Wait(&request, &status));
    nothing(&status);
    OK(MPI_Isend(&value, 1, MPI_INT, MPI_PROC_NULL, 1, MPI_COMM_WORLD, &request));
    OK(MPI_Wait(&request, MPI_STATUS_IGNORE));
    OK(MPI_Issend(&value, 1, MPI_INT, MPI_PROC_NULL, 1, MPI_COMM_WORLD, &request));
    OK(MPI_Wait(&request, MPI_STATUS_IGNORE));
    OK(MPI_Sendrecv(&value, 1, MPI_INT, MPI_PROC_NULL, 1, &other, 1, MPI_INT, MPI_PROC_NULL, 1, MPI_COMM_WORLD, &status));
    nothing(&status);
    OK(MPI_Sendrecv_replace(&value, 1, MPI_INT, MPI_PROC_NULL, 1, MPI_PROC_NULL, 1, MPI_COMM_WORLD, &status));
    nothing(&status);
    CHECK(value == 5 && other == 6);

    /* A shift that does not wrap round. */
    int left = rank > 0 ? rank - 1 : MPI_PROC_NULL, right = rank < size - 1 ? rank + 1 : MPI_PROC_NULL;
    value = rank;
    other = -1;
    OK(MPI_Sendrecv(&value, 1, MPI_INT, right, 2, &other, 1, MPI_INT, left, 2, MPI_COMM_WORLD, &status));
    CHECK(other == rank - 1 && status.MPI_SOURCE == left);
    return end();
}
