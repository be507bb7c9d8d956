/* Cancelled receives: gone, or matched and then complete; never both.
 * ranks: 1 2
 */
#include "world.h"

int main(int argc, char **argv)
{
    begin(&argc, &argv);
    int values[3] = {-1, -1, -1}, cancelled, count, peer = size - 1 - rank;
    MPI_Request requests[3];
    MPI_Status status;

    /* A receive that nothing matches. */
    OK(MPI_Irecv(&values[0], 1, MPI_INT, peer, 1, MPI_COMM_WORLD, &requests[0]));
    OK(MPI_Cancel(&requests[0]));
    CHECK(requests[0] != MPI_REQUEST_NULL);
    OK(MPI_Wait(&requests[0], &status));
    OK(MPI_Test_cancelled(&status, &cancelled));
    CHECK(cancelled && requests[0] == MPI_REQUEST_NULL && values[0] == -1);

    /* One of three in a row: the messages go to the two others. */
    for (int i = 0; i < 3; i++)
        OK(MPI_Irecv(&values[i], 1, MPI_INT, i == 2 ? MPI_ANY_SOURCE : peer, 2, MPI_COMM_WORLD, &requests[i]));
    OK(MPI_Cancel(&requests[0]));
    OK(MPI_Wait(&requests[0], &status));
    OK(MPI_Test_cancelled(&status, &cancelled));
    CHECK(cancelled);
    OK(MPI_Barrier(MPI_COMM_WORLD));
    for (int i = 0; i < 2; i++)
        OK(MPI_Send(&i, 1, MPI_INT, peer, 2, MPI_COMM_WORLD));
    OK(MPI_Waitall(2, requests + 1, MPI_STATUSES_IGNORE));
    CHECK(values[0] == -1 && values[1] == 0 && values[2] == 1);

    /* A receive that has its message cannot be cancelled any more. */
    int sent = 9;
    OK(MPI_Irecv(&values[0], 1, MPI_INT, peer, 3, MPI_COMM_WORLD, &requests[0]));
    OK(MPI_Sendrecv(&sent, 1, MPI_INT, peer, 4, &values[1], 1, MPI_INT, peer, 4, MPI_COMM_WORLD, MPI_STATUS_IGNORE));
    OK(MPI_Ssend(&sent, 1, MPI_INT, peer, 3, MPI_COMM_WORLD));
    OK(MPI_Barrier(MPI_COMM_WORLD));
    int flag;
    OK(MPI_Request_get_status(requests[0], &flag, &status));
    OK(MPI_Cancel(&requests[0]));
    OK(MPI_Wait(&requests[0], &status));
    OK(MPI_Test_cancelled(&status, &cancelled));
    OK(MPI_Get_count(&status, MPI_INT, &count));
    CHECK(!cancelled && count == 1 && values[0] == 9);

    /* A persistent receive lives on after a cancelled start. */
    OK(MPI_Recv_init(&values[2], 1, MPI_INT, peer, 5, MPI_COMM_WORLD, &requests[2]));
    OK(MPI_Start(&requests[2]));
    OK(MPI_Cancel(&requests[2]));
    OK(MPI_Wait(&requests[2], &status));
    OK(MPI_Test_cancelled(&status, &cancelled));
    CHECK(cancelled && requests[2] != MPI_REQUEST_NULL);
    OK(MPI_Barrier(MPI_COMM_WORLD));
    OK(MPI_Start(&requests[2]));
    OK(MPI_Send(&sent, 1, MPI_INT, peer, 5, MPI_COMM_WORLD));
    OK(MPI_Wait(&requests[2], &status));
    OK(MPI_Test_cancelled(&status, &cancelled));
    CHECK(!cancelled && values[2] == 9);
    OK(MPI_Request_free(&requests[2]));
    return end();
}
