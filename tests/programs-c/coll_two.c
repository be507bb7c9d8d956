/* Collectives of two ranks, of which each brings its data in one piece or in several, in place or not: what one side does by itself meets what the
 * other side does in steps. Empty ones among them, and long ones that pass through memory that both share in pieces, of elements that do not fill a piece;
 * operations that commute and one that does not.
 * ranks: 2
 * timeout: 120
 * env: WHIMBREL_COLLECTIVE_CHECK=20
 */
#include "world.h"

enum { MOST = 150000 };

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
        *at(out, spread, i) = 1000000 * rank + i;
    for (int i = 0; rank == root && i < n; i++)
        *at(in, spread, i) = 5000 + i;
    OK(MPI_Bcast(in, n, of(spread), root, MPI_COMM_WORLD));
    for (int i = 0; i < n; i++)
        CHECK(*at(in, spread, i) == 5000 + i);
    CHECK(*at(in, spread, n) == -7);

    OK(MPI_Gather(out, n, of(spread), whole, n, of(spread), root, MPI_COMM_WORLD));
    for (int i = 0; i < 2 * n; i++)
        CHECK(*at(whole, spread, i) == (rank == root ? 1000000 * (i / n) + i % n : -7));

    OK(MPI_Scatter(out, n, of(spread), in, n, of(spread), root, MPI_COMM_WORLD));
    for (int i = 0; i < n; i++)
        CHECK(*at(in, spread, i) == 1000000 * root + rank * n + i);
    CHECK(*at(in, spread, n) == -7);

    /* In place at the root. */
    OK(MPI_Scatter(out, n, of(spread), rank == root ? MPI_IN_PLACE : in, n, of(spread), root, MPI_COMM_WORLD));
    for (int i = 0; rank != root && i < n; i++)
        CHECK(*at(in, spread, i) == 1000000 * root + rank * n + i);
    for (int i = 0; i < n; i++)
        *at(whole, spread, rank * n + i) = 70 + rank;
    OK(MPI_Gather(rank == root ? MPI_IN_PLACE : at(whole, spread, rank * n), n, of(spread), whole, n, of(spread), root, MPI_COMM_WORLD));
    for (int i = 0; rank == root && i < 2 * n; i++)
        CHECK(*at(whole, spread, i) == 70 + i / n);

    clear();
    for (int i = 0; i < 2 * n; i++)
        *at(out, spread, i) = 1000000 * rank + i;
    OK(MPI_Allgather(out, n, of(spread), whole, n, of(spread), MPI_COMM_WORLD));
    for (int i = 0; i < 2 * n; i++)
        CHECK(*at(whole, spread, i) == 1000000 * (i / n) + i % n);
    OK(MPI_Allgather(MPI_IN_PLACE, 0, MPI_DATATYPE_NULL, whole, n, of(spread), MPI_COMM_WORLD));
    for (int i = 0; i < 2 * n; i++)
        CHECK(*at(whole, spread, i) == 1000000 * (i / n) + i % n);
    OK(MPI_Alltoall(out, n, of(spread), whole, n, of(spread), MPI_COMM_WORLD));
    for (int i = 0; i < 2 * n; i++)
        CHECK(*at(whole, spread, i) == 1000000 * (i / n) + rank * n + i % n);
    /* Twice to the other and back. */
    OK(MPI_Alltoall(MPI_IN_PLACE, 0, MPI_DATATYPE_NULL, whole, n, of(spread), MPI_COMM_WORLD));
    for (int i = 0; i < 2 * n; i++)
        CHECK(*at(whole, spread, i) == 1000000 * rank + i);
}

static long value(int r, int i) { return (r ? 5 : 3) + 100L * i; }

static void reducing(int n, int root, MPI_Op op, int in_place)
{
    clear();
    for (int i = 0; i < n; i++)
        out[i] = in[i] = value(rank, i);
    OK(MPI_Reduce(in_place && rank == root ? MPI_IN_PLACE : out, in, n, MPI_LONG, op, root, MPI_COMM_WORLD));
    for (int i = 0; i < n; i++)
        CHECK(in[i] == (rank == root ? value(1, i) + (op == MPI_SUM) * value(0, i) : value(rank, i)));
    CHECK(in[n] == -7);
    /* In place on one rank alone, too. */
    for (int who = 0; who < 2; who++) {
        memcpy(in, out, sizeof *in * (size_t)n);
        OK(MPI_Allreduce(in_place && who != rank ? MPI_IN_PLACE : out, in, n, MPI_LONG, op, MPI_COMM_WORLD));
        for (int i = 0; i < n; i++)
            CHECK(in[i] == value(1, i) + (op == MPI_SUM) * value(0, i));
    }
    memcpy(in, out, sizeof *in * (size_t)n);
    OK(MPI_Scan(in_place ? MPI_IN_PLACE : out, in, n, MPI_LONG, op, MPI_COMM_WORLD));
    for (int i = 0; i < n; i++)
        CHECK(in[i] == value(rank, i) + (rank && op == MPI_SUM) * value(0, i));
    memcpy(in, out, sizeof *in * (size_t)n);
    OK(MPI_Exscan(in_place ? MPI_IN_PLACE : out, in, n, MPI_LONG, op, MPI_COMM_WORLD));
    for (int i = 0; i < n; i++)
        CHECK(in[i] == value(0, i));
    CHECK(in[n] == -7);
    for (int least = 0; least < 2; least++) {
        int counts[2] = {n, least && n > 3 ? 3 : n ? n - 1 : 0};
        clear();
        for (int i = 0; i < counts[0] + counts[1]; i++)
            out[i] = whole[i] = value(rank, i);
        OK(MPI_Reduce_scatter(in_place ? MPI_IN_PLACE : out, in_place ? whole : in, counts, MPI_LONG, op, MPI_COMM_WORLD));
        for (int i = 0, all = rank * counts[0]; i < counts[rank]; i++, all++)
            CHECK((in_place ? whole : in)[i] == value(1, all) + (op == MPI_SUM) * value(0, all));
        CHECK(in_place || in[counts[rank]] == -7);
    }
}

/* Pairs of a value and a place, packed or padded: of the larger value, which is rank 1's in every third one, the place. */
static void locating(int n)
{
    struct { short value; int place; } *pairs = (void *)out, *found = (void *)in;
    struct { long double value; int place; } *wide = (void *)whole, *wider = (void *)out;
    for (int i = 0; i < n; i++) {
        pairs[i].value = (short)(rank == (i % 3 == 0) ? 7 : 2);
        pairs[i].place = 2 * i + rank;
    }
    OK(MPI_Allreduce(pairs, found, n, MPI_SHORT_INT, MPI_MAXLOC, MPI_COMM_WORLD));
    for (int i = 0; i < n; i++)
        CHECK(found[i].value == 7 && found[i].place == 2 * i + (i % 3 == 0));
    for (int i = 0; i < n; i++) {
        wide[i].value = rank == (i % 3 == 0) ? 7 : 2;
        wide[i].place = 2 * i + rank;
    }
    OK(MPI_Reduce(rank ? wide : MPI_IN_PLACE, rank ? wider : wide, n, MPI_LONG_DOUBLE_INT, MPI_MAXLOC, 0, MPI_COMM_WORLD));
    for (int i = 0; rank == 0 && i < n; i++)
        CHECK(wide[i].value == 7 && wide[i].place == 2 * i + (i % 3 == 0));
}

/* Of two equal lengths one is wrong: the other rank is told. */
static void disagreeing(void)
{
    MPI_Comm apart;
    OK(MPI_Comm_dup(MPI_COMM_WORLD, &apart));
    for (int round = 0; round < 12; round++)
        OK(MPI_Bcast(out, 100, MPI_LONG, 0, apart));
    CHECK(MPI_Allreduce(out, in, rank ? MOST : MOST - 1, MPI_LONG, MPI_SUM, apart) != MPI_SUCCESS);
    OK(MPI_Comm_free(&apart));
}

int main(int argc, char **argv)
{
    const int counts[] = {0, 1, 2, 3, 4, 7, 31, 32, 33, 63, 64, 65, 100, 32768, 32769, 50000, 131072, MOST};
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
    for (int round = 0; round < 3; round++) {
        locating(40000 + round);
        locating(MOST / 2 - round);
    }
    disagreeing();
    OK(MPI_Op_free(&right));
    OK(MPI_Type_free(&gaps));
    OK(MPI_Finalize());
    return 0;
}
