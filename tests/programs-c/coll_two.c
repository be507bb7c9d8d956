/* Short collectives of two ranks, of which each brings its data in one piece or in several, in place or not: what one side does by itself meets what the
 * other side does in steps. Longer and empty ones among them; operations that commute and one that does not.
 * ranks: 2
 * timeout: 120
 */
#include "world.h"

enum { MOST = 200 };

static MPI_Op right; /* the value of the higher rank: does not commute */
static MPI_Datatype gaps;
static long out[4 * MOST], in[4 * MOST], whole[4 * MOST];

static void higher(void *from, void *to, int *length, MPI_Datatype *type)
{
    (void)from, (void)to, (void)length, (void)type;
}

/* Element `at` of a buffer, in one piece or with gaps. */
static long *at(long *buffer, int spread, int place) { return &buffer[spread ? 2 * place : place]; }
static MPI_Datatype of(int spread) { return spread ? gaps : MPI_LONG; }

static void clear(void)
{
    for (int i = 0; i < 4 * MOST; i++)
        in[i] = out[i] = whole[i] = -7;
}

static void moving(int n, int root, int spread)
{
    clear();
    for (int i = 0; i < 2 * n; i++)
        *at(out, spread, i) = 1000 * rank + i;
    for (int i = 0; rank == root && i < n; i++)
        *at(in, spread, i) = 5000 + i;
    OK(MPI_Bcast(in, n, of(spread), root, MPI_COMM_WORLD));
    for (int i = 0; i < n; i++)
        CHECK(*at(in, spread, i) == 5000 + i);
    CHECK(*at(in, spread, n) == -7);

    OK(MPI_Gather(out, n, of(spread), whole, n, of(spread), root, MPI_COMM_WORLD));
    for (int i = 0; i < 2 * n; i++)
        CHECK(*at(whole, spread, i) == (rank == root ? 1000 * (i / n) + i % n : -7));

    OK(MPI_Scatter(out, n, of(spread), in, n, of(spread), root, MPI_COMM_WORLD));
    for (int i = 0; i < n; i++)
        CHECK(*at(in, spread, i) == 1000 * root + rank * n + i);
    CHECK(*at(in, spread, n) == -7);

    /* In place at the root. */
    OK(MPI_Scatter(out, n, of(spread), rank == root ? MPI_IN_PLACE : in, n, of(spread), root, MPI_COMM_WORLD));
    for (int i = 0; rank != root && i < n; i++)
        CHECK(*at(in, spread, i) == 1000 * root + rank * n + i);
    for (int i = 0; i < n; i++)
        *at(whole, spread, rank * n + i) = 70 + rank;
    OK(MPI_Gather(rank == root ? MPI_IN_PLACE : at(whole, spread, rank * n), n, of(spread), whole, n, of(spread), root, MPI_COMM_WORLD));
    for (int i = 0; rank == root && i < 2 * n; i++)
        CHECK(*at(whole, spread, i) == 70 + i / n);

    clear();
    for (int i = 0; i < 2 * n; i++)
        *at(out, spread, i) = 1000 * rank + i;
    OK(MPI_Allgather(out, n, of(spread), whole, n, of(spread), MPI_COMM_WORLD));
    for (int i = 0; i < 2 * n; i++)
        CHECK(*at(whole, spread, i) == 1000 * (i / n) + i % n);
    OK(MPI_Allgather(MPI_IN_PLACE, 0, MPI_DATATYPE_NULL, whole, n, of(spread), MPI_COMM_WORLD));
    for (int i = 0; i < 2 * n; i++)
        CHECK(*at(whole, spread, i) == 1000 * (i / n) + i % n);
    OK(MPI_Alltoall(out, n, of(spread), whole, n, of(spread), MPI_COMM_WORLD));
    for (int i = 0; i < 2 * n; i++)
        CHECK(*at(whole, spread, i) == 1000 * (i / n) + rank * n + i % n);
}

static void reducing(int n, int root, MPI_Op op, int in_place)
{
    long low = 3, high = 5, both = op == MPI_SUM ? 8 : 5;
    clear();
    for (int i = 0; i < n; i++)
        out[i] = in[i] = rank ? high : low;
    OK(MPI_Reduce(in_place && rank == root ? MPI_IN_PLACE : out, in, n, MPI_LONG, op, root, MPI_COMM_WORLD));
    for (int i = 0; i < n; i++)
        CHECK(in[i] == (rank == root ? both : rank ? high : low));
    CHECK(in[n] == -7);
    for (int i = 0; i < n; i++)
        in[i] = out[i];
    OK(MPI_Scan(in_place ? MPI_IN_PLACE : out, in, n, MPI_LONG, op, MPI_COMM_WORLD));
    for (int i = 0; i < n; i++)
        CHECK(in[i] == (rank ? both : low));
    for (int i = 0; i < n; i++)
        in[i] = out[i];
    OK(MPI_Exscan(in_place ? MPI_IN_PLACE : out, in, n, MPI_LONG, op, MPI_COMM_WORLD));
    for (int i = 0; i < n; i++)
        CHECK(in[i] == low);
    CHECK(in[n] == -7);
    clear();
    int counts[2] = {n, n ? n - 1 : 0};
    for (int i = 0; i < counts[0] + counts[1]; i++)
        out[i] = whole[i] = (rank ? high : low) + 100 * i * rank;
    OK(MPI_Reduce_scatter(in_place ? MPI_IN_PLACE : out, in_place ? whole : in, counts, MPI_LONG, op, MPI_COMM_WORLD));
    for (int i = 0; i < counts[rank]; i++)
        CHECK((in_place ? whole : in)[i] == both + 100 * (i + rank * counts[0]));
    CHECK(in_place || in[counts[rank]] == -7);
}

int main(int argc, char **argv)
{
    const int counts[] = {0, 1, 2, 3, 4, 7, 31, 32, 33, 63, 64, 65, 100};
    begin(&argc, &argv);
    OK(MPI_Type_create_resized(MPI_LONG, 0, 16, &gaps));
    OK(MPI_Type_commit(&gaps));
    OK(MPI_Op_create(higher, 0, &right));
    for (size_t c = 0; c < sizeof counts / sizeof *counts; c++)
        for (int root = 0; root < 2; root++)
            for (int how = 0; how < 4; how++) {
                moving(counts[c], root, how >> rank & 1);
                reducing(counts[c], root, how & 1 ? MPI_SUM : right, how >> 1);
            }
    OK(MPI_Op_free(&right));
    OK(MPI_Type_free(&gaps));
    OK(MPI_Finalize());
    return 0;
}
