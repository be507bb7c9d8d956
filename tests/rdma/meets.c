/* Every rank speaks to all others for the first time, all at once: short messages to ranks of even number, messages that are read to the others. Then the first
 * one sends the last one messages that it does not wait for, and ends. */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { RANKS_MAX = 64, LONG = 40000, LAST = 50, LAST_BYTES = 4096 };

static char in[RANKS_MAX][LONG], out[LONG], last[LAST][LAST_BYTES];

static void check(int good, const char *what, int me, int other) {
    if (!good) {
        fprintf(stderr, "check failed: rank %d: %s %d\n", me, what, other);
        MPI_Abort(MPI_COMM_WORLD, 3);
    }
}

int main(int argc, char **argv) {
    int me, all, count = 0;
    MPI_Request requests[2 * RANKS_MAX];
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &me);
    MPI_Comm_size(MPI_COMM_WORLD, &all);
    memset(out, me + 1, sizeof out);
    int bytes = me % 2 ? LONG : 8;
    for (int other = 0; other < all; other++)
        MPI_Irecv(in[other], bytes, MPI_BYTE, other, 0, MPI_COMM_WORLD, &requests[count++]);
    for (int other = all - 1; other >= 0; other--)
        MPI_Isend(out, other % 2 ? LONG : 8, MPI_BYTE, other, 0, MPI_COMM_WORLD, &requests[count++]);
    MPI_Waitall(count, requests, MPI_STATUSES_IGNORE);
    for (int other = 0; other < all; other++)
        for (int at = 0; at < bytes; at++)
            check(in[other][at] == other + 1, "the first message of", me, other);

    for (int which = 0; me == 0 && which < LAST; which++) {
        memset(last[which], which, LAST_BYTES);
        MPI_Send(last[which], LAST_BYTES, MPI_BYTE, all - 1, 1, MPI_COMM_WORLD);
    }
    if (me == all - 1) {
        usleep(100000);
        for (int which = 0; which < LAST; which++) {
            MPI_Recv(out, LAST_BYTES, MPI_BYTE, 0, 1, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
            check(out[0] == which && out[LAST_BYTES - 1] == which, "the last message", me, which);
        }
        printf("%d ranks have met\n", all);
    }
    MPI_Finalize();
    return 0;
}
