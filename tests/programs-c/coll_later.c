/* Nonblocking and persistent collectives: many at once, completed in any order, started again with other contents, in place,
 * with counts that stay where they are until the request is done with.
 * ranks: 1 2 3 5
 */
#include "world.h"

enum { COUNT = 1000, KINDS = 10, ROUNDS = 6 };

static int in[KINDS][COUNT], out[KINDS][8 * COUNT];

static int given(int r, int kind, int round, int i)
{
    return r * 1009 + kind * 101 + round * 11 + i;
}

static void give(int kind, int round, int count)
{
    for (int i = 0; i < count; i++)
        in[kind][i] = given(rank, kind, round, i);
}

static int sum_of(int last, int kind, int round, int i)
{
    int sum = 0;
    for (int r = 0; r <= last; r++)
        sum += given(r, kind, round, i);
    return sum;
}

static int root_of(int kind)
{
    return kind % size;
}

static void prepare(int round, int each)
{
    for (int kind = 0; kind < KINDS; kind++) {
        give(kind, round, COUNT);
        memset(out[kind], 0, sizeof out[kind]);
    }
    for (int i = 0; i < each; i++)
        out[7][i] = in[7][i]; /* in place */
    for (int i = 0; i < each * size; i++)
        out[8][i] = in[8][i];
}

static void verify(int round, int each)
{
    for (int i = 0; i < each; i++) {
        CHECK(in[1][i] == given(root_of(1), 1, round, i));
        CHECK(out[2][i] == sum_of(size - 1, 2, round, i));
        if (rank == root_of(3))
            CHECK(out[3][i] == sum_of(size - 1, 3, round, i));
        for (int r = 0; r < size; r++) {
            CHECK(out[4][r * each + i] == given(r, 4, round, i));
            CHECK(out[5][r * each + i] == given(r, 5, round, rank * each + i));
            if (rank == root_of(9))
                CHECK(out[9][r * each + i] == given(r, 9, round, i));
        }
        CHECK(out[6][i] == sum_of(rank, 6, round, i));
        CHECK(out[7][i] == sum_of(size - 1, 7, round, i));
        CHECK(out[8][i] == sum_of(size - 1, 8, round, rank * each + i));
    }
}

static void nonblocking(MPI_Comm comm, int round, int each)
{
    MPI_Request requests[KINDS];
    int *counts = memory_of(64 * sizeof *counts);
    for (int r = 0; r < size; r++)
        counts[r] = each;
    prepare(round, each);
    OK(MPI_Ibarrier(comm, &requests[0]));
    OK(MPI_Ibcast(in[1], each, MPI_INT, root_of(1), comm, &requests[1]));
    OK(MPI_Iallreduce(in[2], out[2], each, MPI_INT, MPI_SUM, comm, &requests[2]));
    OK(MPI_Ireduce(in[3], out[3], each, MPI_INT, MPI_SUM, root_of(3), comm, &requests[3]));
    OK(MPI_Iallgather(in[4], each, MPI_INT, out[4], each, MPI_INT, comm, &requests[4]));
    OK(MPI_Ialltoall(in[5], each, MPI_INT, out[5], each, MPI_INT, comm, &requests[5]));
    OK(MPI_Iscan(in[6], out[6], each, MPI_INT, MPI_SUM, comm, &requests[6]));
    OK(MPI_Iallreduce(MPI_IN_PLACE, out[7], each, MPI_INT, MPI_SUM, comm, &requests[7]));
    OK(MPI_Ireduce_scatter(MPI_IN_PLACE, out[8], counts, MPI_INT, MPI_SUM, comm, &requests[8]));
    OK(MPI_Igather(in[9], each, MPI_INT, out[9], each, MPI_INT, root_of(9), comm, &requests[9]));
    for (int kind = KINDS - 1; kind >= 0; kind -= 2)
        OK(MPI_Wait(&requests[kind], MPI_STATUS_IGNORE));
    OK(MPI_Waitall(KINDS, requests, MPI_STATUSES_IGNORE));
    verify(round, each);
    free(counts);
}

static void persistent(MPI_Comm comm, int each)
{
    MPI_Request requests[KINDS];
    int *counts = memory_of(64 * sizeof *counts);
    for (int r = 0; r < size; r++)
        counts[r] = each;
    OK(MPI_Barrier_init(comm, MPI_INFO_NULL, &requests[0]));
    OK(MPI_Bcast_init(in[1], each, MPI_INT, root_of(1), comm, MPI_INFO_NULL, &requests[1]));
    OK(MPI_Allreduce_init(in[2], out[2], each, MPI_INT, MPI_SUM, comm, MPI_INFO_NULL, &requests[2]));
    OK(MPI_Reduce_init(in[3], out[3], each, MPI_INT, MPI_SUM, root_of(3), comm, MPI_INFO_NULL, &requests[3]));
    OK(MPI_Allgather_init(in[4], each, MPI_INT, out[4], each, MPI_INT, comm, MPI_INFO_NULL, &requests[4]));
    OK(MPI_Alltoall_init(in[5], each, MPI_INT, out[5], each, MPI_INT, comm, MPI_INFO_NULL, &requests[5]));
    OK(MPI_Scan_init(in[6], out[6], each, MPI_INT, MPI_SUM, comm, MPI_INFO_NULL, &requests[6]));
    OK(MPI_Allreduce_init(MPI_IN_PLACE, out[7], each, MPI_INT, MPI_SUM, comm, MPI_INFO_NULL, &requests[7]));
    OK(MPI_Reduce_scatter_init(MPI_IN_PLACE, out[8], counts, MPI_INT, MPI_SUM, comm, MPI_INFO_NULL, &requests[8]));
    OK(MPI_Gather_init(in[9], each, MPI_INT, out[9], each, MPI_INT, root_of(9), comm, MPI_INFO_NULL, &requests[9]));
    for (int round = 0; round < ROUNDS; round++) {
        prepare(round, each);
        if (round % 2)
            OK(MPI_Startall(KINDS, requests));
        else
            for (int kind = 0; kind < KINDS; kind++)
                OK(MPI_Start(&requests[kind]));
        OK(MPI_Waitall(KINDS, requests, MPI_STATUSES_IGNORE));
        verify(round, each);
    }
    for (int kind = 0; kind < KINDS; kind++)
        OK(MPI_Request_free(&requests[kind]));
    free(counts);
}

int main(int argc, char **argv)
{
    begin(&argc, &argv);
    static const int sizes[] = {0, 1, 10, COUNT / 8};
    MPI_Comm twin;
    OK(MPI_Comm_dup(MPI_COMM_WORLD, &twin));
    for (int i = 0; i < 4; i++) {
        for (int round = 0; round < ROUNDS; round++)
            nonblocking(round % 2 ? twin : MPI_COMM_WORLD, round, sizes[i]);
        persistent(i % 2 ? twin : MPI_COMM_WORLD, sizes[i]);
    }
    OK(MPI_Comm_free(&twin));
    /* One that waits for a rank that is late does not keep point-to-point messages from passing. */
    MPI_Request request;
    int value = rank, got = -1, flag;
    if (rank != 0)
        OK(MPI_Ibarrier(MPI_COMM_WORLD, &request));
    OK(MPI_Sendrecv(&value, 1, MPI_INT, (rank + 1) % size, 1, &got, 1, MPI_INT, (rank + size - 1) % size, 1, MPI_COMM_WORLD,
                    MPI_STATUS_IGNORE));
    CHECK(got == (rank + size - 1) % size);
    if (rank != 0) {
        OK(MPI_Test(&request, &flag, MPI_STATUS_IGNORE));
        CHECK(!flag || size == 1);
    }
    /* Only now does rank 0 hear that the others have looked. */
    if (rank != 0)
        OK(MPI_Send(NULL, 0, MPI_INT, 0, 2, MPI_COMM_WORLD));
    for (int peer = 1; rank == 0 && peer < size; peer++)
        OK(MPI_Recv(NULL, 0, MPI_INT, peer, 2, MPI_COMM_WORLD, MPI_STATUS_IGNORE));
    if (rank == 0)
        OK(MPI_Ibarrier(MPI_COMM_WORLD, &request));
    OK(MPI_Wait(&request, MPI_STATUS_IGNORE));
    return end();
}
