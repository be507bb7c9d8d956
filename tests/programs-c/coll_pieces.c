/* Long broadcasts, which pass in pieces through a window that all others read, and reductions in which each rank combines a slice, as where every rank has a
 * core: around the lengths where these begin, of pieces, windows and slices, from random roots, in place or not, with types that have gaps on some ranks, on
 * sub-communicators, and with one rank late now and then. All results are compared.
 * ranks: 3 4 5 7
 * timeout: 240
 * processors: 8
 */
#include "world.h"

enum { ROUNDS = 150, LONGS_MAX = 400000 };

static long *from, *into;
static int me, ranks;

static long value(int round, int r, long i)
{
    return round * 1000003L + r * 10007L + i * 31L + i / 4096;
}

static long sum(int round, long i)
{
    return ranks * (round * 1000003L + i * 31L + i / 4096) + 10007L * ranks * (ranks - 1) / 2;
}

/* Around what a rank brings whole (144, 196, 204, 256 and 340 KiB among 7 to 3), windows of half a room (256 to 680 KiB), and a few of these. */
static int broadcast_length(uint64_t *state)
{
    static const int around[] = {18432, 25088, 26112, 32768, 43520, 34816, 51200, 65536, 87040, 131072, 262144, 393216};
    return around[draw(state) % (sizeof around / sizeof *around)] + (int)(draw(state) % 2051) - 1025;
}

/* Around 8 KiB and 64 KiB divided among the ranks beyond three, pieces of 16 KiB, and what a rank brings whole. */
static int reduction_length(uint64_t *state)
{
    static const int around[] = {1024, 2048, 4096, 6144, 8192, 16384, 18432, 24576, 32768};
    int longs = around[draw(state) % (sizeof around / sizeof *around)] + (int)(draw(state) % 7) - 3;
    return longs;
}

static void broadcast(MPI_Comm comm, int round, int longs, int root, MPI_Datatype spread)
{
    /* Some ranks have a type with gaps, others none. */
    int step = spread != MPI_DATATYPE_NULL && (me + round) % 2 ? 2 : 1;
    for (long i = 0; i < (long)longs * step; i++)
        into[i] = -1;
    for (long i = 0; me == root && i < longs; i++)
        into[i * step] = value(round, root, i);
    OK(MPI_Bcast(into, longs, step == 2 ? spread : MPI_LONG, root, comm));
    for (long i = 0; i < longs; i++) {
        CHECK(into[i * step] == value(round, root, i));
        CHECK(step == 1 || into[i * step + 1] == -1);
    }
}

static void reduction(MPI_Comm comm, int round, int longs, int root, int place)
{
    for (long i = 0; i < longs; i++) {
        from[i] = value(round, me, i);
        into[i] = place && me == root ? from[i] : -1;
    }
    OK(MPI_Reduce(place && me == root ? MPI_IN_PLACE : from, into, longs, MPI_LONG, MPI_SUM, root, comm));
    for (long i = 0; i < longs; i++) {
        CHECK(into[i] == (me == root ? sum(round, i) : -1));
        CHECK(from[i] == value(round, me, i));
    }
}

static void rows(MPI_Comm comm, int rounds, uint64_t seed)
{
    MPI_Datatype apart, spread;
    OK(MPI_Type_vector(1, 1, 2, MPI_LONG, &apart));
    OK(MPI_Type_create_resized(apart, 0, 2 * sizeof(long), &spread));
    OK(MPI_Type_commit(&spread));
    OK(MPI_Comm_rank(comm, &me));
    OK(MPI_Comm_size(comm, &ranks));
    for (int round = 1; round <= rounds; round++) {
        int root = (int)(draw(&seed) % (uint64_t)ranks), kind = (int)(draw(&seed) % 5), place = (int)(draw(&seed) % 2);
        if (kind < 2)
            broadcast(comm, round, broadcast_length(&seed), root, kind == 0 ? spread : MPI_DATATYPE_NULL);
        else
            reduction(comm, round, reduction_length(&seed), root, place);
        if (draw(&seed) % 16 == 0 && me == (int)(draw(&seed) % (uint64_t)ranks))
            nap_ms(3);
    }
    OK(MPI_Type_free(&apart));
    OK(MPI_Type_free(&spread));
}

int main(int argc, char **argv)
{
    begin(&argc, &argv);
    from = memory_of(LONGS_MAX * sizeof *from);
    into = memory_of(2 * (size_t)LONGS_MAX * sizeof *into);
    rows(MPI_COMM_WORLD, ROUNDS, 1);
    MPI_Comm part;
    OK(MPI_Comm_split(MPI_COMM_WORLD, rank % 2, -rank, &part));
    rows(part, ROUNDS / 2, 2);
    OK(MPI_Comm_free(&part));
    return end();
}
