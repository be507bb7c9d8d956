/* A rank that has no bytes for another one sends it nothing, and goes on; one that waits for it all the same gets an error. So does one that waits for a
 * rank that is many collectives ahead. Afterwards the communicator goes on.
 * ranks: 2 3 5
 * timeout: 120
 * env: WHIMBREL_COLLECTIVE_CHECK=20
 */
#include "world.h"
#include <string.h>

enum { LONG = 1 << 19, MOST = 8, AHEAD = 100 };

static int in[LONG * MOST], out[LONG * MOST];

/* Only `who` gets an error, which names `call` and `culprit`; then all are in step. */
static void fails_at(int who, int code, const char *call, int culprit)
{
    char text[MPI_MAX_ERROR_STRING + 1] = "", rank_text[32];
    int length, sum;
    if (rank == who) {
        if (code == MPI_SUCCESS)
            printf("rank %d has no error from %s beside rank %d\n", rank, call, culprit);
        CHECK(code != MPI_SUCCESS);
        OK(MPI_Error_string(code, text, &length));
        snprintf(rank_text, sizeof rank_text, "rank %d", culprit);
        CHECK(strstr(text, call) && strstr(text, rank_text));
    }
    OK(MPI_Allreduce(&rank, &sum, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD));
    CHECK(sum == size * (size - 1) / 2);
}

int main(int argc, char **argv)
{
    begin(&argc, &argv);
    int counts[MOST], places[MOST], none[MOST] = {0}, last = size - 1, code = MPI_SUCCESS;
    MPI_Request request;
    OK(MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN));
    for (int long_blocks = 0; long_blocks < 2; long_blocks++) {
        const int count = long_blocks ? LONG : 1;
        for (int r = 0; r < size; r++) {
            counts[r] = count;
            places[r] = r * count;
        }
        int mine = rank == last ? 0 : count;
        code = MPI_Gatherv(in, mine, MPI_INT, out, counts, places, MPI_INT, 0, MPI_COMM_WORLD);
        fails_at(0, code, "MPI_Gatherv", last);
        none[0] = count;
        code = MPI_Scatterv(in, rank == 0 ? none : counts, places, MPI_INT, out, count, MPI_INT, 0, MPI_COMM_WORLD);
        if (rank != 0)
            CHECK(code != MPI_SUCCESS);
        fails_at(last, rank == 0 ? MPI_SUCCESS : code, "MPI_Scatterv", 0);
        none[0] = 0;
        code = MPI_Alltoallv(in, rank == last ? none : counts, places, MPI_INT, out, rank == last ? none : counts, places, MPI_INT, MPI_COMM_WORLD);
        fails_at(0, code, "MPI_Alltoallv", last);
        code = MPI_Igatherv(in, mine, MPI_INT, out, counts, places, MPI_INT, 0, MPI_COMM_WORLD, &request);
        if (code == MPI_SUCCESS)
            code = MPI_Wait(&request, MPI_STATUS_IGNORE);
        fails_at(0, code, "MPI_Igatherv", last);
    }
    /* A message that is longer than a rank sends along, for one that takes none. */
    for (int r = 0; r < size; r++)
        counts[r] = r == last ? 0 : LONG;
    code = MPI_Gatherv(in, rank == 0 ? 0 : LONG, MPI_INT, out, none, places, MPI_INT, 0, MPI_COMM_WORLD);
    fails_at(last, code, "MPI_Gatherv", 0);
    /* Nobody remembers the call that the last rank waits in, and the communicator is done for. */
    MPI_Comm comm;
    OK(MPI_Comm_dup(MPI_COMM_WORLD, &comm));
    int wrong = 0;
    for (int i = 0; i < AHEAD; i++) {
        code = MPI_Bcast(out, rank == last && i == 0 ? 2 : 1, MPI_INT, 0, comm);
        wrong += code != MPI_SUCCESS;
    }
    CHECK(rank != last || wrong > 0);
    if (MPI_Comm_free(&comm) != MPI_SUCCESS)
        OK(MPI_Comm_free(&comm));
    return end();
}
