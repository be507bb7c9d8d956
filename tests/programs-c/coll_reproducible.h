/* With WHIMBREL_REPRODUCIBLE all reductions have the bits of one order, whatever the function, its form, the length, the root and the way: that of
 * ranks a to b is a to m, then m to b, m - a the largest power of two below b - a. Scans go from rank to rank.
 */
#include "world.h"

enum { LONGEST = 50000 };

static double in[LONGEST * 8], out[LONGEST * 8];

/* Numbers of very different size, so that their sum depends on the order. */
static double given(int of, int i)
{
    double value = (of * 37 + i * 11) % 101 - 50 + 0.1 * (i % 7 + of);
    for (int times = (of * 5 + i) % 13; times > 0; times--)
        value *= 8;
    return value;
}

static double by_halves(int from, int to, int i)
{
    int lower = 1;
    if (to - from == 1)
        return given(from, i);
    while (2 * lower < to - from)
        lower *= 2;
    return by_halves(from, from + lower, i) + by_halves(from + lower, to, i);
}

static double along(int last, int i)
{
    double sum = given(0, i);
    for (int r = 1; r <= last; r++)
        sum += given(r, i);
    return sum;
}

/* Whether `count` results in `out` are those of elements `first` and following. */
static int right(int first, int count)
{
    for (int i = 0; i < count; i++)
        if (out[i] != by_halves(0, size, first + i))
            return 0;
    return 1;
}

static void all_of(int count)
{
    MPI_Request request;
    for (int i = 0; i < count; i++)
        in[i] = given(rank, i);
    OK(MPI_Allreduce(in, out, count, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD));
    CHECK(right(0, count));
    memcpy(out, in, sizeof(double) * (size_t)count);
    OK(MPI_Allreduce(MPI_IN_PLACE, out, count, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD));
    CHECK(right(0, count));
    OK(MPI_Iallreduce(in, out, count, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD, &request));
    OK(MPI_Wait(&request, MPI_STATUS_IGNORE));
    CHECK(right(0, count));
    for (int root = 0; root < size; root += size > 3 ? 3 : 1) {
        OK(MPI_Reduce(in, out, count, MPI_DOUBLE, MPI_SUM, root, MPI_COMM_WORLD));
        CHECK(rank != root || right(0, count));
        OK(MPI_Ireduce(in, out, count, MPI_DOUBLE, MPI_SUM, root, MPI_COMM_WORLD, &request));
        OK(MPI_Wait(&request, MPI_STATUS_IGNORE));
        CHECK(rank != root || right(0, count));
    }
    OK(MPI_Scan(in, out, count, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD));
    for (int i = 0; i < count; i++)
        CHECK(out[i] == along(rank, i));
    OK(MPI_Exscan(in, out, count, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD));
    for (int i = 0; rank > 0 && i < count; i++)
        CHECK(out[i] == along(rank - 1, i));
    OK(MPI_Iscan(in, out, count, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD, &request));
    OK(MPI_Wait(&request, MPI_STATUS_IGNORE));
    for (int i = 0; i < count; i++)
        CHECK(out[i] == along(rank, i));
    for (int i = 0; i < count * size; i++)
        in[i] = given(rank, i);
    OK(MPI_Reduce_scatter_block(in, out, count, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD));
    CHECK(right(rank * count, count));
    OK(MPI_Ireduce_scatter_block(in, out, count, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD, &request));
    OK(MPI_Wait(&request, MPI_STATUS_IGNORE));
    CHECK(right(rank * count, count));
}

int main(int argc, char **argv)
{
    begin(&argc, &argv);
    static const int counts[] = {1, 6, 7, 8, 64, 513, 1000, 3000, LONGEST};
    CHECK(size <= 8);
    for (size_t i = 0; i < sizeof counts / sizeof *counts; i++)
        all_of(counts[i]);
    return end();
}
