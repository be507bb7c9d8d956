/* Collectives do not meet point-to-point messages, nor collectives of other communicators, nor each other's next round.
 * ranks: 2 4 5
 */
#include "world.h"

int main(int argc, char **argv)
{
    begin(&argc, &argv);
    MPI_Comm twin, half;
    OK(MPI_Comm_dup(MPI_COMM_WORLD, &twin));
    OK(MPI_Comm_split(MPI_COMM_WORLD, rank % 2, 0, &half));
    int half_rank, half_size;
    OK(MPI_Comm_rank(half, &half_rank));
    OK(MPI_Comm_size(half, &half_size));

    for (int round = 0; round < 100; round++) {
        int wild = -1, value = round * 10 + rank, to = (rank + 1) % size, from = (rank + size - 1) % size;
        MPI_Request requests[2];
        MPI_Status status;
        /* A receive for anything lies open over all of this. */
        OK(MPI_Irecv(&wild, 1, MPI_INT, MPI_ANY_SOURCE, MPI_ANY_TAG, MPI_COMM_WORLD, &requests[0]));
        OK(MPI_Barrier(MPI_COMM_WORLD));
        int root = round % size, sent = rank == root ? round : -1;
        OK(MPI_Bcast(&sent, 1, MPI_INT, root, MPI_COMM_WORLD));
        CHECK(sent == round);
        int sum;
        OK(MPI_Allreduce(&rank, &sum, 1, MPI_INT, MPI_SUM, twin));
        CHECK(sum == size * (size - 1) / 2);
        OK(MPI_Allreduce(&round, &sum, 1, MPI_INT, MPI_SUM, half));
        CHECK(sum == round * half_size);
        OK(MPI_Isend(&value, 1, MPI_INT, to, round, MPI_COMM_WORLD, &requests[1]));
        int scan;
        OK(MPI_Scan(&round, &scan, 1, MPI_INT, MPI_SUM, half));
        CHECK(scan == round * (half_rank + 1));
        OK(MPI_Wait(&requests[0], &status));
        CHECK(wild == round * 10 + from && status.MPI_TAG == round && status.MPI_SOURCE == from);
        OK(MPI_Wait(&requests[1], MPI_STATUS_IGNORE));
    }
    /* A root that runs ahead through many rounds. */
    for (int round = 0; round < 2000; round++) {
        int value = rank == 0 ? round : -1;
        OK(MPI_Bcast(&value, 1, MPI_INT, 0, MPI_COMM_WORLD));
        CHECK(value == round);
    }
    /* Late ranks and long blocks. */
    enum { LONG = 200000 };
    unsigned char *block = memory_of(LONG);
    for (int root = 0; root < size; root++) {
        if (rank == root)
            fill(block, LONG, (unsigned)root);
        if (rank == (root + 1) % size)
            nap_ms(20);
        OK(MPI_Bcast(block, LONG, MPI_BYTE, root, root % 2 ? twin : MPI_COMM_WORLD));
        CHECK(holds(block, LONG, (unsigned)root));
    }
    free(block);
    OK(MPI_Comm_free(&half));
    OK(MPI_Comm_free(&twin));
    return end();
}
