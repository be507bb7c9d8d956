/* Messages of all lengths up to 64 MiB in a ring, of derived types, and collectives over them; every byte is checked. */
#include <mpi.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int me, all;

static void check(int good, const char *what, long which) {
    if (!good) {
        fprintf(stderr, "check failed: rank %d: %s %ld\n", me, what, which);
        MPI_Abort(MPI_COMM_WORLD, 3);
    }
}

static void fill(unsigned char *bytes, size_t count, uint32_t seed) {
    for (size_t i = 0; i < count; i++) {
        seed = seed * 1664525u + 1013904223u;
        bytes[i] = seed >> 24;
    }
}

/* To the right, from the left, `rounds` times. */
static void ring(size_t bytes, int rounds) {
    unsigned char *out = malloc(bytes + 1), *in = malloc(bytes + 1), *expected = malloc(bytes + 1);
    int right = (me + 1) % all, left = (me + all - 1) % all;
    for (int round = 0; round < rounds; round++) {
        fill(out, bytes, 1000 * me + round);
        fill(expected, bytes, 1000 * left + round);
        memset(in, 0, bytes + 1);
        MPI_Sendrecv(out, (int)bytes, MPI_BYTE, right, round, in, (int)bytes, MPI_BYTE, left, round, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        check(memcmp(in, expected, bytes) == 0, "a message of bytes:", (long)bytes);
    }
    free(out), free(in), free(expected);
}

/* Every second column of a matrix, short and long. */
static void columns(int rows) {
    enum { WIDE = 16 };
    MPI_Datatype column;
    MPI_Type_vector(rows, WIDE / 2, WIDE, MPI_INT, &column);
    MPI_Type_commit(&column);
    int *out = malloc(sizeof *out * rows * WIDE), *in = malloc(sizeof *in * rows * WIDE);
    int right = (me + 1) % all, left = (me + all - 1) % all;
    for (int i = 0; i < rows * WIDE; i++)
        out[i] = i + 7 * me, in[i] = -1;
    MPI_Sendrecv(out, 1, column, right, 1, in, 1, column, left, 1, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    for (int i = 0; i < rows * WIDE; i++)
        check(in[i] == (i % WIDE < WIDE / 2 ? i + 7 * left : -1), "an element of columns:", i);
    MPI_Type_free(&column);
    free(out), free(in);
}

static void collectives(int count) {
    double *mine = malloc(sizeof *mine * count * all), *theirs = malloc(sizeof *theirs * count * all);
    for (int i = 0; i < count * all; i++)
        mine[i] = me + i;
    MPI_Allreduce(mine, theirs, count, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD);
    for (int i = 0; i < count; i++)
        check(theirs[i] == all * (all - 1) / 2 + (double)all * i, "a sum:", i);
    MPI_Alltoall(mine, count, MPI_DOUBLE, theirs, count, MPI_DOUBLE, MPI_COMM_WORLD);
    for (int i = 0; i < count * all; i++)
        check(theirs[i] == i / count + me * count + i % count, "an element of alltoall:", i);
    MPI_Bcast(mine, count, MPI_DOUBLE, all - 1, MPI_COMM_WORLD);
    for (int i = 0; i < count; i++)
        check(mine[i] == all - 1 + i, "an element of bcast:", i);
    MPI_Barrier(MPI_COMM_WORLD);
    free(mine), free(theirs);
}

int main(int argc, char **argv) {
    size_t most = argc > 1 ? strtoul(argv[1], NULL, 10) : 64 << 20;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &me);
    MPI_Comm_size(MPI_COMM_WORLD, &all);
    static const size_t sizes[] = {0, 1, 8, 100, 480, 512, 513, 1400, 1408, 1409, 4000, 4096, 4097, 9000, 65535, 65536, 65537, 300000, 1 << 20, 64 << 20};
    for (size_t at = 0; at < sizeof sizes / sizeof *sizes && sizes[at] <= most; at++)
        ring(sizes[at], sizes[at] <= 100000 ? 20 : 1);
    columns(10), columns(20000);
    collectives(1), collectives(1000), collectives(20000);
    if (me == 0)
        printf("%d ranks: all is well\n", all);
    MPI_Finalize();
}
