/* One rank comes late to many nonblocking collectives, about each of which all others have asked it again and again: it answers all of that at once, and
 * finds soon afterwards that the next collective does not match.
 * ranks: 4
 * timeout: 30
 * env: WHIMBREL_COLLECTIVE_CHECK=20
 */
#include "world.h"

enum { MANY = 300, RANKS = 4, LATE_MS = 3000 };

int main(int argc, char **argv)
{
    static MPI_Request requests[MANY];
    static int got[MANY][RANKS], counts[RANKS] = {1, 1, 1, 1}, places[RANKS] = {0, 4, 8, 12};
    static MPI_Datatype types[RANKS];
    int given[RANKS] = {0, 1, 2, 3};
    long values[2] = {0, 0};
    begin(&argc, &argv);
    MPI_Comm comm;
    for (int r = 0; r < RANKS; r++)
        types[r] = MPI_INT;
    OK(MPI_Comm_dup(MPI_COMM_WORLD, &comm));
    OK(MPI_Comm_set_errhandler(comm, MPI_ERRORS_RETURN));
    /* It takes in what they ask, without waiting in any call. */
    for (int ms = 0, flag; rank == 0 && ms < LATE_MS; ms++) {
        OK(MPI_Iprobe(MPI_ANY_SOURCE, 0, comm, &flag, MPI_STATUS_IGNORE));
        nap_ms(1);
    }
    for (int i = 0; i < MANY; i++)
        OK(MPI_Ialltoallw(given, counts, places, types, got[i], counts, places, types, comm, &requests[i]));
    OK(MPI_Waitall(MANY, requests, MPI_STATUSES_IGNORE));
    for (int i = 0; i < MANY; i++)
        for (int r = 0; r < RANKS; r++)
            CHECK(got[i][r] == rank);
    /* The others' vectors are longer than the root's, which is over before. */
    OK(MPI_Ibcast(values, rank == 0 ? 1 : 2, MPI_LONG, 0, comm, &requests[0]));
    int code = MPI_Wait(&requests[0], MPI_STATUS_IGNORE);
    CHECK(rank == 0 || code != MPI_SUCCESS);
    OK(MPI_Barrier(comm));
    OK(MPI_Comm_free(&comm));
    return end();
}
