/* Long rows of blocking collectives without barriers between, through the memory that ranks of one host share: roots
 * and lengths differ from one to the next, so that some ranks run ahead of others and lines and room are used again
 * and again. Also on more communicators than there is room for, with blocks too long to go there, in place, with gaps,
 * of lengths that are no whole words, and with lengths that do not match in the middle of it.
 * ranks: 2 3 4 7
 * processors: 16
 * timeout: 240
 * env: WHIMBREL_COLLECTIVE_CHECK=20
 */
#include "world.h"

enum { ROUNDS = 400, MOST = 8, LONGEST = 40000, COMMS = 40 };

static unsigned char in[2 * MOST * LONGEST], out[2 * MOST * LONGEST];
static long from[MOST * LONGEST / 8], into[MOST * LONGEST / 8];
static int counts[MOST], places[MOST], own[MOST], own_places[MOST];

/* The length of round `round` in bytes, a multiple of 8: short ones, and some up to LONGEST. */
static int length_of(uint64_t *state)
{
    static const int upper[] = {8, 48, 56, 256, 4096, 16 << 10, LONGEST};
    return 8 + (int)(draw(state) % (uint64_t)upper[draw(state) % 7]) / 8 * 8 % LONGEST;
}

static void moving(MPI_Comm comm, int round, int bytes, int root, int place)
{
    unsigned seed = (unsigned)round * 8;
    switch (round % 6) {
    case 0:
        memset(out, 0, (size_t)bytes);
        if (rank == root)
            fill(out, (size_t)bytes, seed);
        OK(MPI_Bcast(out, bytes, MPI_BYTE, root, comm));
        CHECK(holds(out, (size_t)bytes, seed));
        break;
    case 1:
        fill(in, (size_t)bytes, seed + (unsigned)rank);
        memcpy(out + rank * bytes, in, (size_t)bytes);
        OK(MPI_Gather(place && rank == root ? MPI_IN_PLACE : in, bytes, MPI_BYTE, out, bytes, MPI_BYTE, root, comm));
        for (int r = 0; rank == root && r < size; r++)
            CHECK(holds(out + r * bytes, (size_t)bytes, seed + (unsigned)r));
        break;
    case 2:
        for (int r = 0; r < size; r++)
            fill(in + r * bytes, (size_t)bytes, seed + (unsigned)r);
        OK(MPI_Scatter(in, bytes, MPI_BYTE, place && rank == root ? MPI_IN_PLACE : out, bytes, MPI_BYTE, root, comm));
        CHECK((place && rank == root) || holds(out, (size_t)bytes, seed + (unsigned)rank));
        break;
    case 3:
        fill(in, (size_t)bytes, seed + (unsigned)rank);
        memcpy(out + rank * bytes, in, (size_t)bytes);
        OK(MPI_Allgather(place ? MPI_IN_PLACE : in, bytes, MPI_BYTE, out, bytes, MPI_BYTE, comm));
        for (int r = 0; r < size; r++)
            CHECK(holds(out + r * bytes, (size_t)bytes, seed + (unsigned)r));
        break;
    case 4:
        for (int r = 0; r < size; r++)
            fill(in + r * bytes, (size_t)bytes, seed + (unsigned)(rank * size + r));
        memcpy(out, in, (size_t)(bytes * size));
        OK(MPI_Alltoall(place ? MPI_IN_PLACE : in, bytes, MPI_BYTE, out, bytes, MPI_BYTE, comm));
        for (int r = 0; r < size; r++)
            CHECK(holds(out + r * bytes, (size_t)bytes, seed + (unsigned)(r * size + rank)));
        break;
    default:
        /* Blocks of different lengths, some of none, some too long to be shared. */
        for (int r = 0, at = 0, own_at = 0; r < size; r++) {
            counts[r] = bytes * ((rank + r + round) % 3);
            own[r] = counts[r];
            places[r] = at;
            own_places[r] = own_at;
            fill(in + at, (size_t)counts[r], seed + (unsigned)(rank * size + r));
            at += counts[r];
            own_at += own[r];
        }
        memset(out, 0, sizeof out);
        OK(MPI_Alltoallv(in, counts, places, MPI_BYTE, out, own, own_places, MPI_BYTE, comm));
        for (int r = 0; r < size; r++)
            CHECK(holds(out + own_places[r], (size_t)own[r], seed + (unsigned)(r * size + rank)));
        for (int r = 0, at = 0; r < size; r++, at += counts[r - 1]) {
            counts[r] = bytes * ((r + round) % 3);
            places[r] = at;
        }
        fill(in, (size_t)counts[rank], seed + (unsigned)rank);
        OK(MPI_Gatherv(in, counts[rank], MPI_BYTE, out, counts, places, MPI_BYTE, root, comm));
        for (int r = 0; rank == root && r < size; r++)
            CHECK(holds(out + places[r], (size_t)counts[r], seed + (unsigned)r));
        OK(MPI_Allgatherv(in, counts[rank], MPI_BYTE, out, counts, places, MPI_BYTE, comm));
        for (int r = 0; r < size; r++)
            CHECK(holds(out + places[r], (size_t)counts[r], seed + (unsigned)r));
        memset(in, 0, (size_t)counts[rank]);
        OK(MPI_Scatterv(out, counts, places, MPI_BYTE, in, counts[rank], MPI_BYTE, root, comm));
        CHECK(holds(in, (size_t)counts[rank], seed + (unsigned)rank));
    }
}

static void reducing(MPI_Comm comm, int round, int elements, int root, int place)
{
    long sum = (long)size * (size - 1) / 2, below = (long)rank * (rank - 1) / 2;
    for (int i = 0; i < elements * (round % 5 == 2 ? size : 1); i++)
        into[i] = from[i] = rank + (long)i * round;
    void *give = place ? MPI_IN_PLACE : from;
    switch (round % 5) {
    case 0:
        OK(MPI_Reduce(rank == root ? give : from, into, elements, MPI_LONG, MPI_SUM, root, comm));
        for (int i = 0; rank == root && i < elements; i++)
            CHECK(into[i] == sum + (long)size * i * round);
        break;
    case 1:
        OK(MPI_Allreduce(give, into, elements, MPI_LONG, MPI_SUM, comm));
        for (int i = 0; i < elements; i++)
            CHECK(into[i] == sum + (long)size * i * round);
        break;
    case 2:
        OK(MPI_Reduce_scatter_block(give, into, elements, MPI_LONG, MPI_SUM, comm));
        for (int i = 0; i < elements; i++)
            CHECK(into[i] == sum + (long)size * (rank * elements + i) * round);
        break;
    case 3:
        OK(MPI_Scan(give, into, elements, MPI_LONG, MPI_SUM, comm));
        for (int i = 0; i < elements; i++)
            CHECK(into[i] == below + rank + (long)(rank + 1) * i * round);
        break;
    default:
        OK(MPI_Exscan(give, into, elements, MPI_LONG, MPI_SUM, comm));
        for (int i = 0; rank > 0 && i < elements; i++)
            CHECK(into[i] == below + (long)rank * i * round);
    }
}

static void rows(MPI_Comm comm, int rounds, uint64_t seed)
{
    for (int round = 0; round < rounds; round++) {
        int bytes = length_of(&seed), root = (int)(draw(&seed) % (uint64_t)size), place = (int)(draw(&seed) % 2);
        if (draw(&seed) % 2)
            moving(comm, round, bytes, root, place);
        else
            reducing(comm, round, bytes / 8, root, place);
        /* Now and then some rank is late. */
        if (draw(&seed) % 64 == 0 && rank == (int)(draw(&seed) % (uint64_t)size))
            nap_ms(2);
    }
}

/* Every length around that of a line, also those that are no whole words. */
static void odd_lengths(MPI_Comm comm)
{
    static short few[64], result[64];
    for (int bytes = 1; bytes <= 66; bytes++) {
        for (int kind = 0; kind < 6; kind++)
            moving(comm, 6 * bytes + kind, bytes, bytes % size, 0);
        int elements = bytes / 2, root = bytes % size;
        for (int i = 0; i < elements; i++)
            few[i] = (short)(100 * rank + i);
        OK(MPI_Reduce(few, result, elements, MPI_SHORT, MPI_SUM, root, comm));
        for (int i = 0; rank == root && i < elements; i++)
            CHECK(result[i] == 50 * size * (size - 1) + size * i);
        OK(MPI_Scan(few, result, elements, MPI_SHORT, MPI_SUM, comm));
        for (int i = 0; i < elements; i++)
            CHECK(result[i] == 50 * rank * (rank + 1) + (rank + 1) * i);
        OK(MPI_Exscan(few, result, elements, MPI_SHORT, MPI_SUM, comm));
        for (int i = 0; rank > 0 && i < elements; i++)
            CHECK(result[i] == 50 * rank * (rank - 1) + rank * i);
    }
}

/* The first rank's blocks have gaps, those of the others have none, and some have no bytes. */
static void uneven_types(MPI_Comm comm)
{
    enum { LONGS = 3 };
    MPI_Datatype gaps;
    OK(MPI_Type_vector(LONGS, 1, 2, MPI_LONG, &gaps));
    OK(MPI_Type_commit(&gaps));
    int step = rank == 0 ? 2 : 1, span = rank == 0 ? 2 * LONGS - 1 : LONGS;
    for (int round = 0; round < 60; round++) {
        for (int r = 0; r < size; r++) {
            int some = (rank + r + round) % 4 != 0;
            counts[r] = some ? (rank == 0 ? 1 : LONGS) : 0;
            /* In extents of the type: that of the vector is as long as it reaches. */
            places[r] = rank == 0 ? r : r * span;
            for (int i = 0; i < span; i++) {
                from[r * span + i] = i % step == 0 ? 10000 * round + 1000 * rank + 100 * r + i / step : -1;
                into[r * span + i] = -2;
            }
        }
        MPI_Datatype type = rank == 0 ? gaps : MPI_LONG;
        OK(MPI_Alltoallv(from, counts, places, type, into, counts, places, type, comm));
        for (int r = 0; r < size; r++)
            for (int i = 0; i < span; i++)
                CHECK(into[r * span + i] == (counts[r] > 0 && i % step == 0 ? 10000 * round + 1000 * r + 100 * rank + i / step : -2));
    }
    OK(MPI_Type_free(&gaps));
}

/* One rank has other bytes than the others have for it: whoever reads them gets an error, later collectives go on. */
static void disagreeing(MPI_Comm comm)
{
    for (int bytes = 8; bytes <= 4096; bytes *= 8) {
        for (int r = 0; r < size; r++) {
            counts[r] = bytes;
            places[r] = r * 2 * bytes;
        }
        int code = MPI_Gatherv(in, rank == size - 1 ? 2 * bytes : bytes, MPI_BYTE, out, counts, places, MPI_BYTE, 0, comm);
        CHECK(rank != 0 || code != MPI_SUCCESS);
        rows(comm, 20, 3);
        code = MPI_Bcast(out, rank == 0 ? bytes : 2 * bytes, MPI_BYTE, 0, comm);
        CHECK(rank == 0 || code != MPI_SUCCESS);
        rows(comm, 20, 4);
        code = rank == 0 ? MPI_Scatter(in, bytes, MPI_BYTE, out, bytes, MPI_BYTE, 0, comm) : MPI_Allgather(in, bytes, MPI_BYTE, out, bytes, MPI_BYTE, comm);
        CHECK(rank == 0 || code != MPI_SUCCESS);
        rows(comm, 20, 5);
    }
}

int main(int argc, char **argv)
{
    begin(&argc, &argv);
    rows(MPI_COMM_WORLD, ROUNDS, 1);
    odd_lengths(MPI_COMM_WORLD);
    uneven_types(MPI_COMM_WORLD);

    /* Without a column of gaps the same bytes. */
    MPI_Datatype gaps;
    OK(MPI_Type_vector(16, 1, 2, MPI_LONG, &gaps));
    OK(MPI_Type_commit(&gaps));
    for (int round = 0; round < 40; round++) {
        for (int i = 0; i < 32; i++)
            from[i] = rank == round % size ? 1000 * round + i / 2 : -1;
        if (rank == 0)
            OK(MPI_Bcast(from, 1, gaps, round % size, MPI_COMM_WORLD));
        else if (rank == round % size)
            for (int i = 0; i < 16; i++)
                from[i] = 1000 * round + i;
        if (rank != 0)
            OK(MPI_Bcast(from, 16, MPI_LONG, round % size, MPI_COMM_WORLD));
        for (int i = 0; i < 16; i++)
            CHECK(from[rank == 0 ? 2 * i : i] == 1000 * round + i);
    }
    OK(MPI_Type_free(&gaps));

    /* More communicators than there is room for; then the room of those that are gone is used again. */
    static MPI_Comm many[COMMS];
    for (int again = 0; again < 2; again++) {
        for (int i = 0; i < COMMS; i++) {
            OK(MPI_Comm_dup(MPI_COMM_WORLD, &many[i]));
            rows(many[i], 24, 10 + (uint64_t)i);
        }
        for (int i = 0; i < COMMS; i++)
            rows(many[i], 6, 99 + (uint64_t)i);
        for (int i = 0; i < COMMS; i++)
            OK(MPI_Comm_free(&many[i]));
    }

    MPI_Comm apart;
    OK(MPI_Comm_dup(MPI_COMM_WORLD, &apart));
    OK(MPI_Comm_set_errhandler(apart, MPI_ERRORS_RETURN));
    rows(apart, 20, 2);
    disagreeing(apart);
    OK(MPI_Comm_free(&apart));
    return end();
}
