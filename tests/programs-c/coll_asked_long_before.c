/* As coll_asked_long_ago, where the numbers that tags carry have come again since: what was asked is not taken for a question about another collective.
 * ranks: 2
 * env: WHIMBREL_COLLECTIVE_CHECK=20
 */
#include "world.h"

enum { NUMBERS = 1 << 17, LATE_MS = 300 };

static void many(int count)
{
    int one = 1, sum;
    for (int i = 0; i < count; i++) {
        OK(MPI_Allreduce(&one, &sum, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD));
        CHECK(sum == size);
    }
}

int main(int argc, char **argv)
{
    begin(&argc, &argv);
    for (int ms = 0, flag; rank == 0 && ms < LATE_MS; ms++) {
        OK(MPI_Iprobe(MPI_ANY_SOURCE, 0, MPI_COMM_WORLD, &flag, MPI_STATUS_IGNORE));
        nap_ms(1);
    }
    OK(MPI_Barrier(MPI_COMM_WORLD));
    many(NUMBERS);
    /* The first rank waits here, and looks at what it has been asked about the first barrier. */
    if (rank > 0)
        nap_ms(LATE_MS);
    OK(MPI_Barrier(MPI_COMM_WORLD));
    /* So many later nothing works any more on a communicator on which calls have differed. */
    many(NUMBERS / 2);
    return end();
}
