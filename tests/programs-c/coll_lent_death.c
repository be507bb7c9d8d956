/* A rank that ends while others read its memory, or wait until it has read theirs, in long collectives: they get an error.
 * env: WHIMBREL_COLLECTIVE_LENDING=always
 * ranks: 2 4
 * timeout: 60
 * status: 7
 */
#include "world.h"

#include <unistd.h>

enum { LONGS = 1 << 18, ROUNDS = 20 };

int main(int argc, char **argv)
{
    begin(&argc, &argv);
    long *from = memory_of((size_t)size * LONGS * sizeof *from), *into = memory_of((size_t)size * LONGS * sizeof *into);
    int dying = size - 1, counts[8], places[8];
    CHECK(size <= 8);
    for (int r = 0; r < size; r++) {
        counts[r] = LONGS;
        places[r] = r * LONGS;
    }
    for (int round = 0;; round++) {
        if (rank == dying && round == ROUNDS)
            _exit(7);
        int code = MPI_SUCCESS;
        /* The last one is a collective in which all read of all: each gets an error. */
        switch (round < ROUNDS ? round % 7 : size > 2 ? 5 : 0) {
        case 0:
            code = MPI_Allgather(from, LONGS, MPI_LONG, into, LONGS, MPI_LONG, MPI_COMM_WORLD);
            break;
        case 1:
            code = MPI_Allreduce(from, into, LONGS, MPI_LONG, MPI_SUM, MPI_COMM_WORLD);
            break;
        case 2:
            code = MPI_Bcast(into, LONGS, MPI_LONG, 0, MPI_COMM_WORLD);
            break;
        case 3:
            code = MPI_Gather(from, LONGS, MPI_LONG, into, LONGS, MPI_LONG, 0, MPI_COMM_WORLD);
            break;
        case 4:
            code = MPI_Reduce(from, into, LONGS, MPI_LONG, MPI_SUM, 0, MPI_COMM_WORLD);
            break;
        case 5:
            code = MPI_Alltoallv(from, counts, places, MPI_LONG, into, counts, places, MPI_LONG, MPI_COMM_WORLD);
            break;
        default:
            code = MPI_Scatter(from, LONGS, MPI_LONG, into, LONGS, MPI_LONG, 0, MPI_COMM_WORLD);
        }
        if (round >= ROUNDS || code != MPI_SUCCESS) {
            CHECK(round >= ROUNDS && code != MPI_SUCCESS);
            pause();
        }
    }
}
