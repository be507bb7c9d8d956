/* Long collectives of random operations and roots, in place or not, with types that have gaps on some ranks, on sub-communicators, and with one rank late now
 * and then. All results are compared. Whoever includes this says ROUNDS, LONGS_MAX and the lengths AROUND which they are.
 */
#ifndef COLL_LONG_H
#define COLL_LONG_H

#include "world.h"

enum { MOST = 7 };

static long *from, *into;
static int me, ranks;

/* What rank `r` has at place `i` of round `round`. */
static long value(int round, int r, long i)
{
    return round * 1000003L + r * 10007L + i * 31L + i / 4096;
}

/* The sum of that over all ranks. */
static long sum(int round, long i)
{
    return ranks * (round * 1000003L + i * 31L + i / 4096) + 10007L * ranks * (ranks - 1) / 2;
}

/* A length of [AROUND], or a few elements more or less. */
static int length_of(uint64_t *state)
{
    static const int around[] = AROUND;
    int longs = around[draw(state) % (sizeof around / sizeof *around)] + (int)(draw(state) % 7) - 3;
    return longs < 1 ? 1 : longs > LONGS_MAX ? LONGS_MAX : longs;
}

static void put(long *where, int round, int r, long first, int longs)
{
    for (int i = 0; i < longs; i++)
        where[i] = value(round, r, first + i);
}

static int has(const long *where, int round, int r, long first, int longs)
{
    for (int i = 0; i < longs; i++)
        if (where[i] != value(round, r, first + i))
            return 0;
    return 1;
}

static int has_sum(const long *where, int round, long first, int longs)
{
    for (int i = 0; i < longs; i++)
        if (where[i] != sum(round, first + i))
            return 0;
    return 1;
}

static void moving(MPI_Comm comm, int kind, int round, int longs, int root, int place)
{
    long block = longs;
    switch (kind) {
    case 0:
        if (me == root)
            put(into, round, root, 0, longs);
        OK(MPI_Bcast(into, longs, MPI_LONG, root, comm));
        CHECK(has(into, round, root, 0, longs));
        break;
    case 1:
        put(from, round, me, 0, longs);
        memcpy(into + me * block, from, (size_t)longs * sizeof *from);
        OK(MPI_Gather(place && me == root ? MPI_IN_PLACE : from, longs, MPI_LONG, into, longs, MPI_LONG, root, comm));
        for (int r = 0; me == root && r < ranks; r++)
            CHECK(has(into + r * block, round, r, 0, longs));
        break;
    case 2:
        for (int r = 0; r < ranks; r++)
            put(from + r * block, round, r, 0, longs);
        OK(MPI_Scatter(from, longs, MPI_LONG, place && me == root ? MPI_IN_PLACE : into, longs, MPI_LONG, root, comm));
        CHECK((place && me == root) || has(into, round, me, 0, longs));
        break;
    case 3:
        put(from, round, me, 0, longs);
        memcpy(into + me * block, from, (size_t)longs * sizeof *from);
        OK(MPI_Allgather(place ? MPI_IN_PLACE : from, longs, MPI_LONG, into, longs, MPI_LONG, comm));
        for (int r = 0; r < ranks; r++)
            CHECK(has(into + r * block, round, r, 0, longs));
        break;
    default:
        for (int r = 0; r < ranks; r++)
            put(from + r * block, round, me * ranks + r, 0, longs);
        memcpy(into, from, (size_t)(longs * ranks) * sizeof *from);
        OK(MPI_Alltoall(place ? MPI_IN_PLACE : from, longs, MPI_LONG, into, longs, MPI_LONG, comm));
        for (int r = 0; r < ranks; r++)
            CHECK(has(into + r * block, round, r * ranks + me, 0, longs));
    }
}

/* Blocks of which some have no bytes, or a few, for others than the next one; in place they are as long in both directions. */
static int block_of(int round, int s, int r, int longs)
{
    int lengths[] = {longs, 0, longs / 2, 3 % longs, longs};
    return lengths[(s * r + s + r + round) % 5];
}

static void blocks(MPI_Comm comm, int round, int longs, int place)
{
    int counts[MOST], places[MOST];
    for (int r = 0; r < ranks; r++) {
        counts[r] = block_of(round, me, r, longs);
        places[r] = (ranks - 1 - r) * longs;
        put(from + places[r], round, me * ranks + r, 0, counts[r]);
        put(into + places[r], round, place ? me * ranks + r : -1, 0, longs);
    }
    OK(MPI_Alltoallv(place ? MPI_IN_PLACE : from, counts, places, MPI_LONG, into, counts, places, MPI_LONG, comm));
    for (int r = 0; r < ranks; r++) {
        CHECK(has(into + places[r], round, r * ranks + me, 0, counts[r]));
        CHECK(has(from + places[r], round, me * ranks + r, 0, counts[r]));
    }
}

static void reducing(MPI_Comm comm, int kind, int round, int longs, int root, int place)
{
    int whole = kind == 2 ? longs * ranks : longs;
    put(from, round, me, 0, whole);
    put(into, round, me, 0, whole);
    void *give = place ? MPI_IN_PLACE : from;
    switch (kind) {
    case 0:
        OK(MPI_Reduce(me == root ? give : from, into, longs, MPI_LONG, MPI_SUM, root, comm));
        CHECK(me != root || has_sum(into, round, 0, longs));
        break;
    case 1:
        OK(MPI_Allreduce(give, into, longs, MPI_LONG, MPI_SUM, comm));
        CHECK(has_sum(into, round, 0, longs));
        break;
    case 2:
        OK(MPI_Reduce_scatter_block(give, into, longs, MPI_LONG, MPI_SUM, comm));
        CHECK(has_sum(into, round, (long)me * longs, longs));
        break;
    default: {
        /* Slices of different lengths, some of none. */
        int counts[MOST], before = 0, total = 0;
        for (int r = 0; r < ranks; r++) {
            counts[r] = (r + round) % 3 * (longs / ranks) / 2;
            before += r < me ? counts[r] : 0;
            total += counts[r];
        }
        OK(MPI_Reduce_scatter(give, into, counts, MPI_LONG, MPI_SUM, comm));
        CHECK(total == 0 || has_sum(into, round, before, counts[me]));
    }
    }
    CHECK(has(from, round, me, 0, whole));
}

/* Some ranks have a type with gaps, others none. */
static void gaps(MPI_Comm comm, int round, int longs)
{
    MPI_Datatype apart;
    OK(MPI_Type_vector(1, 1, 2, MPI_LONG, &apart));
    MPI_Datatype spread;
    OK(MPI_Type_create_resized(apart, 0, 2 * sizeof(long), &spread));
    OK(MPI_Type_commit(&spread));
    int step = (me + round) % 2 ? 2 : 1;
    longs = longs > LONGS_MAX / 2 ? LONGS_MAX / 2 : longs;
    for (int i = 0; i < longs; i++) {
        from[i * step] = value(round, me, i);
        into[i] = -1;
    }
    OK(MPI_Allgather(from, longs, step == 2 ? spread : MPI_LONG, into, longs, MPI_LONG, comm));
    for (int r = 0; r < ranks; r++)
        CHECK(has(into + (long)r * longs, round, r, 0, longs));
    OK(MPI_Type_free(&apart));
    OK(MPI_Type_free(&spread));
}

static void rows(MPI_Comm comm, int rounds, uint64_t seed)
{
    OK(MPI_Comm_rank(comm, &me));
    OK(MPI_Comm_size(comm, &ranks));
    for (int round = 1; round <= rounds; round++) {
        int longs = length_of(&seed), root = (int)(draw(&seed) % (uint64_t)ranks), place = (int)(draw(&seed) % 2), kind = (int)(draw(&seed) % 11);
        if (kind < 5)
            moving(comm, kind, round, longs, root, place);
        else if (kind < 9)
            reducing(comm, kind - 5, round, longs, root, place);
        else if (kind < 10)
            blocks(comm, round, longs, place);
        else
            gaps(comm, round, longs);
        if (draw(&seed) % 32 == 0 && me == (int)(draw(&seed) % (uint64_t)ranks))
            nap_ms(3);
    }
}

int main(int argc, char **argv)
{
    begin(&argc, &argv);
    from = memory_of((size_t)MOST * LONGS_MAX * sizeof *from);
    into = memory_of((size_t)MOST * LONGS_MAX * sizeof *into);
    rows(MPI_COMM_WORLD, ROUNDS, 1);
    MPI_Comm part;
    OK(MPI_Comm_split(MPI_COMM_WORLD, rank % 2, -rank, &part));
    rows(part, ROUNDS / 2, 2);
    OK(MPI_Comm_free(&part));
    rows(MPI_COMM_WORLD, ROUNDS / 4, 3);
    free(from);
    free(into);
    return end();
}

#endif
