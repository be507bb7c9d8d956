/* Collectives with a count and a place for each rank: uneven, empty, with gaps, in any order.
 * ranks: 1 2 3 5 8
 */
#include "world.h"

enum { SCALES = 4, RANKS_MAX = 16 };

static int counts[RANKS_MAX], places[RANKS_MAX], total;

/* Blocks of different lengths, laid out backwards with a gap of 3 between them. */
static void lay_out(int scale)
{
    total = 0;
    for (int r = size - 1; r >= 0; r--) {
        counts[r] = (r * 3 % 5) * scale;
        places[r] = total;
        total += counts[r] + 3;
    }
}

static void block(int *buffer, int from, int to, int count)
{
    for (int i = 0; i < count; i++)
        buffer[i] = from * 100000 + to * 1000 + i;
}

static int is_block(const int *buffer, int from, int to, int count)
{
    for (int i = 0; i < count; i++)
        if (buffer[i] != from * 100000 + to * 1000 + i)
            return 0;
    return 1;
}

static int gaps_intact(const int *buffer)
{
    for (int r = 0; r < size; r++)
        for (int i = 0; i < 3; i++)
            if (buffer[places[r] + counts[r] + i] != -1)
                return 0;
    return 1;
}

static void with_scale(int scale)
{
    lay_out(scale);
    size_t bytes = (size_t)total * sizeof(int);
    int *all = memory_of(bytes), *mine = memory_of(bytes), *other = memory_of(bytes);

    for (int root = 0; root < size; root++) {
        block(mine, rank, root, counts[rank]);
        memset(all, 0xff, bytes);
        OK(MPI_Gatherv(mine, counts[rank], MPI_INT, all, counts, places, MPI_INT, root, MPI_COMM_WORLD));
        for (int r = 0; rank == root && r < size; r++)
            CHECK(is_block(all + places[r], r, root, counts[r]));
        CHECK(gaps_intact(all));
        if (rank == root)
            for (int r = 0; r < size; r++)
                block(all + places[r], root, r, counts[r]);
        OK(MPI_Scatterv(all, counts, places, MPI_INT, mine, counts[rank], MPI_INT, root, MPI_COMM_WORLD));
        CHECK(is_block(mine, root, rank, counts[rank]));
    }
    block(mine, rank, 9, counts[rank]);
    memset(all, 0xff, bytes);
    OK(MPI_Allgatherv(mine, counts[rank], MPI_INT, all, counts, places, MPI_INT, MPI_COMM_WORLD));
    for (int r = 0; r < size; r++)
        CHECK(is_block(all + places[r], r, 9, counts[r]));
    CHECK(gaps_intact(all));
    memset(all, 0xff, bytes);
    block(all + places[rank], rank, 8, counts[rank]);
    OK(MPI_Allgatherv(MPI_IN_PLACE, 0, MPI_INT, all, counts, places, MPI_INT, MPI_COMM_WORLD));
    for (int r = 0; r < size; r++)
        CHECK(is_block(all + places[r], r, 8, counts[r]));

    /* From rank a to rank b: (a + 2b) % 4 times the scale. */
    int to_counts[RANKS_MAX], to_places[RANKS_MAX], from_counts[RANKS_MAX], from_places[RANKS_MAX], room = 0;
    for (int r = 0; r < size; r++) {
        to_counts[r] = (rank + 2 * r) % 4 * scale;
        from_counts[r] = (r + 2 * rank) % 4 * scale;
        to_places[r] = r * 4 * scale;
        from_places[r] = (size - 1 - r) * 4 * scale;
        room = size * 4 * scale;
    }
    int *sent = memory_of((size_t)room * sizeof *sent), *got = memory_of((size_t)room * sizeof *got);
    for (int r = 0; r < size; r++)
        block(sent + to_places[r], rank, r, to_counts[r]);
    OK(MPI_Alltoallv(sent, to_counts, to_places, MPI_INT, got, from_counts, from_places, MPI_INT, MPI_COMM_WORLD));
    for (int r = 0; r < size; r++)
        CHECK(is_block(got + from_places[r], r, rank, from_counts[r]));

    MPI_Datatype types[RANKS_MAX];
    for (int r = 0; r < size; r++) {
        types[r] = MPI_INT;
        to_places[r] *= (int)sizeof(int);
        from_places[r] *= (int)sizeof(int);
    }
    memset(got, 0, (size_t)room * sizeof *got);
    OK(MPI_Alltoallw(sent, to_counts, to_places, types, got, from_counts, from_places, types, MPI_COMM_WORLD));
    for (int r = 0; r < size; r++)
        CHECK(is_block(got + from_places[r] / (int)sizeof(int), r, rank, from_counts[r]));
    free(sent);
    free(got);
    free(all);
    free(mine);
    free(other);
}

int main(int argc, char **argv)
{
    begin(&argc, &argv);
    CHECK(size <= RANKS_MAX);
    static const int scales[SCALES] = {1, 60, 240, 20000}; /* the last: blocks too long to be shared */
    for (int i = 0; i < SCALES; i++)
        with_scale(scales[i]);
    return end();
}
