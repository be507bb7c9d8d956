/* Messages that come all the time do not keep a rank that waits in a collective from asking whether it matches.
 * ranks: 3
 * timeout: 120
 * env: WHIMBREL_COLLECTIVE_CHECK=200
 */
#include "world.h"
#include <time.h>

enum { RECEIVES = 1 << 16 };

static MPI_Request requests[RECEIVES];
static int values[RECEIVES];

int main(int argc, char **argv)
{
    begin(&argc, &argv);
    MPI_Comm comm, traffic;
    const struct timespec pause = {0, 2000000};
    int stop = 0, sent = 0, flag = 0, code = MPI_SUCCESS, color = rank < 2 ? 0 : MPI_UNDEFINED;
    OK(MPI_Comm_split(MPI_COMM_WORLD, color, 0, &comm));
    OK(MPI_Comm_dup(MPI_COMM_WORLD, &traffic));
    if (rank == 0)
        for (int i = 0; i < RECEIVES; i++)
            OK(MPI_Irecv(&values[i], 1, MPI_INT, 2, 1, traffic, &requests[i]));
    OK(MPI_Barrier(MPI_COMM_WORLD));
    if (rank < 2) {
        OK(MPI_Comm_set_errhandler(comm, MPI_ERRORS_RETURN));
        code = rank == 0 ? MPI_Reduce(&rank, &sent, 1, MPI_INT, MPI_SUM, 0, comm) : MPI_Alltoall(&rank, 0, MPI_INT, &sent, 0, MPI_INT, comm);
        if (rank == 0) {
            CHECK(code != MPI_SUCCESS);
            OK(MPI_Send(&stop, 1, MPI_INT, 2, 2, traffic));
        }
    } else {
        MPI_Request done;
        OK(MPI_Irecv(&stop, 1, MPI_INT, 0, 2, traffic, &done));
        while (!flag && sent < RECEIVES) {
            OK(MPI_Send(&sent, 1, MPI_INT, 0, 1, traffic));
            sent++;
            nanosleep(&pause, NULL);
            OK(MPI_Test(&done, &flag, MPI_STATUS_IGNORE));
        }
        CHECK(flag);
        for (; sent < RECEIVES; sent++)
            OK(MPI_Send(&sent, 1, MPI_INT, 0, 1, traffic));
    }
    if (rank == 0)
        OK(MPI_Waitall(RECEIVES, requests, MPI_STATUSES_IGNORE));
    OK(MPI_Barrier(MPI_COMM_WORLD));
    OK(MPI_Comm_free(&traffic));
    if (comm != MPI_COMM_NULL && MPI_Comm_free(&comm) != MPI_SUCCESS)
        OK(MPI_Comm_free(&comm));
    return end();
}
