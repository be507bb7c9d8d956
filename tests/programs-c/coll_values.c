/* Every blocking collective, with every root, over sizes where algorithms change, in place too, against the plain answer.
 * ranks: 1 2 3 4 5 8
 * timeout: 180
 */
#include "world.h"

static int *in, *out, *all;

/* Element `i` that rank `r` gives in this test. */
static int given(int r, int i)
{
    return r * 1000003 + i * 7;
}

static void give(int *buffer, int r, int count)
{
    for (int i = 0; i < count; i++)
        buffer[i] = given(r, i);
}

static int taken(const int *buffer, int r, int from, int count)
{
    for (int i = 0; i < count; i++)
        if (buffer[i] != given(r, from + i))
            return 0;
    return 1;
}

/* Sums over ranks 0..last of element i. */
static int sum_of(int last, int i)
{
    int sum = 0;
    for (int r = 0; r <= last; r++)
        sum += given(r, i);
    return sum;
}

static void rooted(int count, int root)
{
    if (rank == root)
        give(out, root, count);
    else
        memset(out, 0, (size_t)count * sizeof *out);
    OK(MPI_Bcast(out, count, MPI_INT, root, MPI_COMM_WORLD));
    CHECK(taken(out, root, 0, count));

    give(in, rank, count);
    OK(MPI_Gather(in, count, MPI_INT, all, count, MPI_INT, root, MPI_COMM_WORLD));
    for (int r = 0; rank == root && r < size; r++)
        CHECK(taken(all + r * count, r, 0, count));
    if (rank == root) {
        memset(all, 0, (size_t)(size * count) * sizeof *all);
        memcpy(all + root * count, in, (size_t)count * sizeof *in);
        OK(MPI_Gather(MPI_IN_PLACE, 0, MPI_INT, all, count, MPI_INT, root, MPI_COMM_WORLD));
        for (int r = 0; r < size; r++)
            CHECK(taken(all + r * count, r, 0, count));
    } else
        OK(MPI_Gather(in, count, MPI_INT, NULL, 0, MPI_INT, root, MPI_COMM_WORLD));

    memset(out, 0, (size_t)count * sizeof *out);
    OK(MPI_Scatter(all, count, MPI_INT, out, count, MPI_INT, root, MPI_COMM_WORLD));
    CHECK(taken(out, rank, 0, count));
    memset(out, 0, (size_t)count * sizeof *out);
    if (rank == root)
        OK(MPI_Scatter(all, count, MPI_INT, MPI_IN_PLACE, 0, MPI_INT, root, MPI_COMM_WORLD));
    else {
        OK(MPI_Scatter(NULL, 0, MPI_INT, out, count, MPI_INT, root, MPI_COMM_WORLD));
        CHECK(taken(out, rank, 0, count));
    }

    memset(out, 0, (size_t)count * sizeof *out);
    OK(MPI_Reduce(in, out, count, MPI_INT, MPI_SUM, root, MPI_COMM_WORLD));
    for (int i = 0; rank == root && i < count; i++)
        CHECK(out[i] == sum_of(size - 1, i));
    CHECK(taken(in, rank, 0, count));
    if (rank == root) {
        memcpy(out, in, (size_t)count * sizeof *in);
        OK(MPI_Reduce(MPI_IN_PLACE, out, count, MPI_INT, MPI_MAX, root, MPI_COMM_WORLD));
        CHECK(taken(out, size - 1, 0, count));
    } else
        OK(MPI_Reduce(in, NULL, count, MPI_INT, MPI_MAX, root, MPI_COMM_WORLD));
}

static void unrooted(int count)
{
    give(in, rank, count);
    memset(all, 0, (size_t)(size * count) * sizeof *all);
    OK(MPI_Allgather(in, count, MPI_INT, all, count, MPI_INT, MPI_COMM_WORLD));
    for (int r = 0; r < size; r++)
        CHECK(taken(all + r * count, r, 0, count));
    memset(all, 0, (size_t)(size * count) * sizeof *all);
    give(all + rank * count, rank, count);
    OK(MPI_Allgather(MPI_IN_PLACE, 0, MPI_INT, all, count, MPI_INT, MPI_COMM_WORLD));
    for (int r = 0; r < size; r++)
        CHECK(taken(all + r * count, r, 0, count));

    OK(MPI_Allreduce(in, out, count, MPI_INT, MPI_SUM, MPI_COMM_WORLD));
    for (int i = 0; i < count; i++)
        CHECK(out[i] == sum_of(size - 1, i));
    memcpy(out, in, (size_t)count * sizeof *in);
    OK(MPI_Allreduce(MPI_IN_PLACE, out, count, MPI_INT, MPI_MIN, MPI_COMM_WORLD));
    CHECK(taken(out, 0, 0, count));

    OK(MPI_Scan(in, out, count, MPI_INT, MPI_SUM, MPI_COMM_WORLD));
    for (int i = 0; i < count; i++)
        CHECK(out[i] == sum_of(rank, i));
    memcpy(out, in, (size_t)count * sizeof *in);
    OK(MPI_Scan(MPI_IN_PLACE, out, count, MPI_INT, MPI_SUM, MPI_COMM_WORLD));
    for (int i = 0; i < count; i++)
        CHECK(out[i] == sum_of(rank, i));
    OK(MPI_Exscan(in, out, count, MPI_INT, MPI_SUM, MPI_COMM_WORLD));
    for (int i = 0; rank > 0 && i < count; i++)
        CHECK(out[i] == sum_of(rank - 1, i));

    /* Block for rank r: elements r * count and on of what everybody gives. */
    give(all, rank, size * count);
    OK(MPI_Reduce_scatter_block(all, out, count, MPI_INT, MPI_SUM, MPI_COMM_WORLD));
    for (int i = 0; i < count; i++)
        CHECK(out[i] == sum_of(size - 1, rank * count + i));
    int counts[64], start = 0;
    for (int r = 0; r < size; r++)
        counts[r] = r % 2 ? count : count / 2; /* uneven, some perhaps 0 */
    for (int r = 0; r < rank; r++)
        start += counts[r];
    OK(MPI_Reduce_scatter(all, out, counts, MPI_INT, MPI_SUM, MPI_COMM_WORLD));
    for (int i = 0; i < counts[rank]; i++)
        CHECK(out[i] == sum_of(size - 1, start + i));
    OK(MPI_Reduce_scatter_block(MPI_IN_PLACE, all, count, MPI_INT, MPI_SUM, MPI_COMM_WORLD));
    for (int i = 0; i < count; i++)
        CHECK(all[i] == sum_of(size - 1, rank * count + i));

    int *to = memory_of((size_t)(size * count) * sizeof *to);
    for (int r = 0; r < size; r++)
        for (int i = 0; i < count; i++)
            to[r * count + i] = given(rank * 64 + r, i);
    OK(MPI_Alltoall(to, count, MPI_INT, all, count, MPI_INT, MPI_COMM_WORLD));
    for (int r = 0; r < size; r++)
        CHECK(taken(all + r * count, r * 64 + rank, 0, count));
    OK(MPI_Alltoall(MPI_IN_PLACE, 0, MPI_INT, to, count, MPI_INT, MPI_COMM_WORLD));
    for (int r = 0; r < size; r++)
        CHECK(taken(to + r * count, r * 64 + rank, 0, count));
    free(to);
}

int main(int argc, char **argv)
{
    begin(&argc, &argv);
    static const int counts[] = {0, 1, 2, 3, 7, 100, 513, 2048, 5000, 40000};
    in = memory_of(40000 * sizeof *in);
    out = memory_of(40000 * sizeof *out);
    all = memory_of((size_t)size * 40000 * sizeof *all);
    for (size_t i = 0; i < sizeof counts / sizeof *counts; i++) {
        OK(MPI_Barrier(MPI_COMM_WORLD));
        for (int root = 0; root < size; root += size > 4 && counts[i] > 100 ? 3 : 1)
            rooted(counts[i], root);
        unrooted(counts[i]);
    }
    free(in);
    free(out);
    free(all);
    return end();
}
