/* A rank waits in a barrier for one that has room for no more of its messages, and asks it what it has called. Nobody ever looks at that question: both
 * finalize all the same.
 * ranks: 2
 * env: WHIMBREL_FABRIC=udp WHIMBREL_COLLECTIVE_CHECK=400
 */
#include "../programs-c/world.h"

enum { MESSAGES = 1200, BYTES = 1000 };
static const double LATE_S = 1;

static char bodies[MESSAGES][BYTES];
static MPI_Request requests[MESSAGES];

int main(int argc, char **argv)
{
    begin(&argc, &argv);
    /* A question tells of earlier calls, too: it is not of the shortest messages, which go with their header in any case. */
    for (int i = 0; i < 8; i++)
        OK(MPI_Barrier(MPI_COMM_WORLD));
    if (rank == 0) {
        for (int i = 0; i < MESSAGES; i++) {
            fill(bodies[i], BYTES, (unsigned)i);
            OK(MPI_Isend(bodies[i], BYTES, MPI_CHAR, 1, 0, MPI_COMM_WORLD, &requests[i]));
        }
    } else {
        /* Takes in what comes, and receives none of it. */
        int found;
        for (double start = MPI_Wtime(); MPI_Wtime() < start + LATE_S;)
            OK(MPI_Iprobe(0, 1, MPI_COMM_WORLD, &found, MPI_STATUS_IGNORE));
        for (int i = 0; i < MESSAGES; i++) {
            OK(MPI_Recv(bodies[i], BYTES, MPI_CHAR, 0, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE));
            for (size_t at = 0; at < BYTES; at++)
                CHECK((unsigned char)bodies[i][at] == pattern(at, (unsigned)i));
        }
    }
    OK(MPI_Barrier(MPI_COMM_WORLD));
    if (rank == 0)
        OK(MPI_Waitall(MESSAGES, requests, MPI_STATUSES_IGNORE));
    return end();
}
