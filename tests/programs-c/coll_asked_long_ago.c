/* What a rank has asked before another one had come to a collective is read when that one has been in it and has forgotten it: nothing is wrong.
 * ranks: 2 3
 * env: WHIMBREL_COLLECTIVE_CHECK=20
 */
#include "world.h"

enum { MANY = 40, LATE_MS = 300 };

int main(int argc, char **argv)
{
    MPI_Request requests[MANY];
    int one = 1, sums[MANY];
    begin(&argc, &argv);
    for (int round = 0; round < 3; round++) {
        for (int ms = 0, flag; rank == 0 && ms < LATE_MS; ms++) {
            OK(MPI_Iprobe(MPI_ANY_SOURCE, 0, MPI_COMM_WORLD, &flag, MPI_STATUS_IGNORE));
            nap_ms(1);
        }
        OK(MPI_Iallreduce(&one, &sums[0], 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD, &requests[0]));
        OK(MPI_Wait(&requests[0], MPI_STATUS_IGNORE));
        for (int i = 0; i < MANY; i++)
            OK(MPI_Iallreduce(&one, &sums[i], 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD, &requests[i]));
        OK(MPI_Waitall(MANY, requests, MPI_STATUSES_IGNORE));
        for (int i = 0; i < MANY; i++)
            CHECK(sums[i] == size);
        /* The first rank waits here, and looks at what it has been asked. */
        if (rank > 0)
            nap_ms(LATE_MS);
        OK(MPI_Barrier(MPI_COMM_WORLD));
    }
    return end();
}
