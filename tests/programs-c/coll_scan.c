/* Scans and exclusive scans of vectors from one element to more than a rank's share of the memory that ranks of one host
 * have in common, in place or not, by an operation of the program that does not commute, and by one of the standard's;
 * several behind each other without barriers, and two with a length that differs.
 * ranks: 2 3 5
 * env: WHIMBREL_COLLECTIVE_CHECK=20
 */
#include "world.h"

enum { LONGEST = 400000, PAIRS = 70001 };

/* The map x -> a x + b modulo 2^32. The operation is "first the one, then the other". */
typedef struct {
    uint32_t a, b;
} Map;

static Map mine[LONGEST], got[LONGEST];
static long longs[LONGEST], most[LONGEST];

static Map both(Map first, Map then)
{
    return (Map){first.a * then.a, first.b * then.a + then.b};
}

static void operation(void *in, void *inout, int *count, MPI_Datatype *type)
{
    (void)type;
    for (int i = 0; i < *count; i++)
        ((Map *)inout)[i] = both(((Map *)in)[i], ((Map *)inout)[i]);
}

static Map given(int of, int i)
{
    return (Map){(uint32_t)(of * 7919 + i * 31 + 3), (uint32_t)(of + i * 5)};
}

/* What ranks 0 to `last` give together. */
static int is_result(Map value, int last, int i)
{
    Map expected = given(0, i);
    for (int r = 1; r <= last; r++)
        expected = both(expected, given(r, i));
    return value.a == expected.a && value.b == expected.b;
}

static void scans(MPI_Op op, MPI_Datatype type, int count, int place)
{
    for (int i = 0; i < count; i++)
        got[i] = mine[i] = given(rank, i);
    OK(MPI_Scan(place ? MPI_IN_PLACE : mine, got, count, type, op, MPI_COMM_WORLD));
    for (int i = 0; i < count; i++)
        CHECK(is_result(got[i], rank, i));
    for (int i = 0; i < count; i++)
        got[i] = mine[i] = given(rank, i);
    OK(MPI_Exscan(place ? MPI_IN_PLACE : mine, got, count, type, op, MPI_COMM_WORLD));
    for (int i = 0; i < count; i++)
        CHECK(is_result(got[i], rank == 0 ? 0 : rank - 1, i));
}

static void maxima(int count)
{
    for (int i = 0; i < count; i++)
        longs[i] = (long)(i + rank * 7) % 11;
    OK(MPI_Scan(longs, most, count, MPI_LONG, MPI_MAX, MPI_COMM_WORLD));
    for (int i = 0; i < count; i++) {
        long expected = 0;
        for (int r = 0; r <= rank; r++)
            expected = (i + r * 7) % 11 > expected ? (i + r * 7) % 11 : expected;
        CHECK(most[i] == expected);
    }
}

/* Pairs of 12 bytes, which have gaps in memory: no power of two of bytes goes into whole ones. */
static void places(int count, int exclusive)
{
    static struct { double value; int place; } pairs[PAIRS], best[PAIRS];
    for (int i = 0; i < count; i++) {
        pairs[i].value = (rank * 5 + i) % 7;
        pairs[i].place = rank;
        best[i].value = best[i].place = -1;
    }
    OK((exclusive ? MPI_Exscan : MPI_Scan)(pairs, best, count, MPI_DOUBLE_INT, MPI_MAXLOC, MPI_COMM_WORLD));
    for (int i = 0; i < count && (rank > 0 || !exclusive); i++) {
        int at = 0;
        for (int r = 1; r < rank + !exclusive; r++)
            if ((r * 5 + i) % 7 > (at * 5 + i) % 7)
                at = r;
        CHECK(best[i].place == at && best[i].value == (at * 5 + i) % 7);
    }
    for (int i = 0; i < count && rank == 0 && exclusive; i++)
        CHECK(best[i].place == -1);
}

int main(int argc, char **argv)
{
    begin(&argc, &argv);
    static const int counts[] = {1, 6, 7, 100, 513, 3000, 9000, 40000, 99991, LONGEST};
    MPI_Datatype type;
    MPI_Op op;
    OK(MPI_Type_contiguous(2, MPI_UINT32_T, &type));
    OK(MPI_Type_commit(&type));
    OK(MPI_Op_create(operation, 0, &op));
    for (int round = 0; round < 4; round++)
        for (size_t i = 0; i < sizeof counts / sizeof *counts; i++) {
            scans(op, type, counts[i], round % 2);
            maxima(counts[i]);
            places(counts[i] < PAIRS ? counts[i] : PAIRS, round % 2);
        }

    MPI_Comm apart;
    OK(MPI_Comm_dup(MPI_COMM_WORLD, &apart));
    OK(MPI_Comm_set_errhandler(apart, MPI_ERRORS_RETURN));
    for (int i = 0; i < 20; i++)
        OK(MPI_Scan(longs, most, 2000, MPI_LONG, MPI_MAX, apart));
    int code = MPI_Scan(longs, most, rank == 0 ? 2000 : 2001, MPI_LONG, MPI_MAX, apart);
    CHECK(rank != 1 || code != MPI_SUCCESS);
    /* Rank 0 waits for nobody in a scan: it must not have freed the communicator when it is asked. */
    OK(MPI_Barrier(apart));
    for (int i = 0; i < 20; i++)
        OK(MPI_Scan(longs, most, 2000, MPI_LONG, MPI_MAX, apart));
    code = MPI_Scan(longs, most, rank == 0 ? LONGEST : LONGEST - 1, MPI_LONG, MPI_MAX, apart);
    CHECK(rank != 1 || code != MPI_SUCCESS);
    OK(MPI_Barrier(apart));
    OK(MPI_Comm_free(&apart));
    OK(MPI_Op_free(&op));
    OK(MPI_Type_free(&type));
    return end();
}
