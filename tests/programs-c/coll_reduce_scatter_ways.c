/* Short reduce-scatters, in which each rank names its vector in a way of its own: apart or in place. Some ranks get nothing.
 * In every fourth all have a datatype with gaps, and an operation for it.
 * ranks: 1 2 3 4 7
 */
#include "world.h"

enum { TURNS = 400, LONGEST = 4 };

/* As random as needed, the same on all ranks. */
static unsigned next(unsigned *state)
{
    *state = *state * 1664525u + 1013904223u;
    return *state >> 16;
}

static int value(int turn, int rank, int at)
{
    return turn * 1000 + rank * 100 + at;
}

static void sum_spaced(void *from, void *into, int *length, MPI_Datatype *datatype)
{
    (void)datatype;
    for (int i = 0; i < *length; i++)
        ((int *)into)[2 * i] += ((int *)from)[2 * i];
}

int main(int argc, char **argv)
{
    begin(&argc, &argv);
    MPI_Datatype spaced;
    OK(MPI_Type_create_resized(MPI_INT, 0, 2 * sizeof(int), &spaced));
    OK(MPI_Type_commit(&spaced));
    MPI_Op sum;
    OK(MPI_Op_create(sum_spaced, 1, &sum));
    unsigned state = 7;

    for (int turn = 0; turn < TURNS; turn++) {
        int counts[16], total = 0, before = 0, block = next(&state) % 2, each = next(&state) % (LONGEST + 1);
        for (int r = 0; r < size; r++) {
            int drawn = next(&state) % (LONGEST + 1);
            counts[r] = block ? each : drawn;
            before += r < rank ? counts[r] : 0;
            total += counts[r];
        }
        unsigned own = (unsigned)turn * 31u + (unsigned)rank * 17u;
        int in_place = next(&own) % 3 == 0, step = turn % 4 == 3 ? 2 : 1;
        MPI_Datatype datatype = step == 2 ? spaced : MPI_INT;
        int whole[2 * 16 * LONGEST + 1], part[2 * 16 * LONGEST + 1];
        for (int i = 0; i < 2 * 16 * LONGEST + 1; i++)
            whole[i] = part[i] = -1;
        for (int i = 0; i < total; i++)
            (in_place ? part : whole)[i * step] = value(turn, rank, i);
        const void *from = in_place ? MPI_IN_PLACE : whole;
        MPI_Op op = step == 2 ? sum : turn % 3 == 0 ? MPI_MAX : MPI_SUM;
        if (block)
            OK(MPI_Reduce_scatter_block(from, part, each, datatype, op, MPI_COMM_WORLD));
        else
            OK(MPI_Reduce_scatter(from, part, counts, datatype, op, MPI_COMM_WORLD));
        for (int i = 0; i < counts[rank]; i++) {
            int expected = 0;
            for (int r = 0; r < size; r++)
                expected = op != MPI_MAX ? expected + value(turn, r, before + i) : value(turn, r, before + i);
            CHECK(part[i * step] == expected);
            CHECK(step == 1 || part[i * step + 1] == -1);
        }
        if (!in_place)
            CHECK(part[counts[rank] * step] == -1);
    }
    OK(MPI_Op_free(&sum));
    OK(MPI_Type_free(&spaced));
    return end();
}
