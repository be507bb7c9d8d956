/* The first collectives of communicators, which tell their members who shares a host with whom, are begun one after another without waiting for any: by
 * ranks that come late, in every form, and across two communicators in another order. */
#include "../programs-c/world.h"

enum { COMMS = 24, LONG = 40000 };

static void in_flight(MPI_Comm comm, int turn)
{
    MPI_Request requests[6];
    int root = turn % size, word = rank == root ? turn : -1, sum = -1, *all = memory_of((size_t)size * sizeof(int));
    unsigned char *block = memory_of(LONG), *same = memory_of(LONG);
    if (rank == root)
        fill(block, LONG, (unsigned)turn);
    if (turn % 3 == 0 && rank == (turn / 3) % size)
        nap_ms(5);
    OK(MPI_Ibcast(&word, 1, MPI_INT, root, comm, &requests[0]));
    OK(MPI_Iallreduce(&rank, &sum, 1, MPI_INT, MPI_SUM, comm, &requests[1]));
    if (turn % 4 == 1 && rank == turn % size)
        nap_ms(5);
    OK(MPI_Iallgather(&turn, 1, MPI_INT, all, 1, MPI_INT, comm, &requests[2]));
    OK(MPI_Ibcast(block, LONG, MPI_BYTE, root, comm, &requests[3]));
    OK(MPI_Ibarrier(comm, &requests[4]));
    /* A blocking one after those that are under way. */
    int most = -1;
    OK(MPI_Allreduce(&rank, &most, 1, MPI_INT, MPI_MAX, comm));
    CHECK(most == size - 1);
    OK(MPI_Waitall(5, requests, MPI_STATUSES_IGNORE));
    fill(same, LONG, (unsigned)turn);
    CHECK(word == turn && sum == size * (size - 1) / 2 && memcmp(block, same, LONG) == 0);
    for (int i = 0; i < size; i++)
        CHECK(all[i] == turn);
    free(all);
    free(block);
    free(same);
}

int main(int argc, char **argv)
{
    begin(&argc, &argv);
    for (int turn = 0; turn < COMMS; turn++) {
        MPI_Comm comm, other;
        OK(MPI_Comm_dup(MPI_COMM_WORLD, &comm));
        OK(MPI_Comm_split(MPI_COMM_WORLD, 0, turn % 2 ? size - rank : rank, &other));
        if (turn % 3 == 1) {
            /* Made before anything has been asked, started after it, on some ranks after others. */
            MPI_Request again;
            int sum = -1, own = rank + turn;
            OK(MPI_Allreduce_init(&own, &sum, 1, MPI_INT, MPI_SUM, comm, MPI_INFO_NULL, &again));
            in_flight(comm, turn);
            for (int round = 0; round < 3; round++) {
                sum = -1;
                if (rank == round)
                    nap_ms(2);
                OK(MPI_Start(&again));
                OK(MPI_Wait(&again, MPI_STATUS_IGNORE));
                CHECK(sum == size * (size - 1) / 2 + size * turn);
            }
            OK(MPI_Request_free(&again));
        } else if (turn % 3 == 2) {
            /* The first ones of two communicators, begun in different orders. */
            MPI_Request requests[2];
            int sums[2] = {-1, -1};
            for (int i = 0; i < 2; i++) {
                int which = (i + rank) % 2;
                OK(MPI_Iallreduce(&turn, &sums[which], 1, MPI_INT, MPI_SUM, which ? comm : other, &requests[which]));
            }
            OK(MPI_Waitall(2, requests, MPI_STATUSES_IGNORE));
            CHECK(sums[0] == size * turn && sums[1] == size * turn);
        } else {
            in_flight(comm, turn);
        }
        if (turn % 4 == 3) {
            /* What is not allowed, and goes well in other libraries: a nonblocking one before a blocking one on some ranks, after it on others. */
            MPI_Comm twin;
            MPI_Request request;
            int sum = -1;
            OK(MPI_Comm_dup(MPI_COMM_WORLD, &twin));
            if (rank % 2)
                OK(MPI_Ibarrier(twin, &request));
            OK(MPI_Allreduce(&turn, &sum, 1, MPI_INT, MPI_SUM, twin));
            if (rank % 2 == 0)
                OK(MPI_Ibarrier(twin, &request));
            OK(MPI_Wait(&request, MPI_STATUS_IGNORE));
            CHECK(sum == size * turn);
            OK(MPI_Comm_free(&twin));
        }
        in_flight(comm, turn + 1);
        OK(MPI_Comm_free(&comm));
        OK(MPI_Comm_free(&other));
    }
    return end();
}
