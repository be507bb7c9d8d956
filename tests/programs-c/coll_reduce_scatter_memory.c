/* A long reduce-scatter needs little memory beside the program's.
 * ranks: 2
 */
#include "world.h"
#include <sys/resource.h>

enum { BLOCK = 16 << 20 };

static long peak_kib(void)
{
    struct rusage usage;
    getrusage(RUSAGE_SELF, &usage);
    return usage.ru_maxrss;
}

int main(int argc, char **argv)
{
    begin(&argc, &argv);
    int *in = malloc(sizeof(int) * BLOCK * size), *out = malloc(sizeof(int) * BLOCK);
    for (int i = 0; i < BLOCK * size; i++)
        in[i] = i % 1000 + rank;
    memset(out, 0, sizeof(int) * BLOCK);
    OK(MPI_Barrier(MPI_COMM_WORLD));
    long before = peak_kib();
    OK(MPI_Reduce_scatter_block(in, out, BLOCK, MPI_INT, MPI_SUM, MPI_COMM_WORLD));
    long after = peak_kib();
    for (int i = 0; i < BLOCK; i++)
        CHECK(out[i] == 2 * ((rank * BLOCK + i) % 1000) + 1);
    /* A block is 64 MiB; three of them were taken once. */
    printf("rank %d: %ld KiB more\n", rank, after - before);
    CHECK(after - before < 40 << 10);
    free(in);
    free(out);
    return end();
}
