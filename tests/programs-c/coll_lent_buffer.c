/* Memory that cannot be read or written in long collectives whose members read and write each other's: an error of the buffer where it is met, an error or
 * none elsewhere, and later collectives go on.
 * ranks: 3 4
 * env: WHIMBREL_COLLECTIVE_LENDING=always
 */
#include "world.h"

#include <sys/mman.h>

enum { BYTES = 1 << 20, ROUNDS = 12 };

static unsigned char *good, *into, *bad;

static int class_of(int code)
{
    int class;
    OK(MPI_Error_class(code, &class));
    return class;
}

static void goes_on(void)
{
    for (int round = 0; round < ROUNDS; round++) {
        fill(good, BYTES, (unsigned)(round + (round % size == rank ? 0 : 100)));
        OK(MPI_Bcast(good, BYTES, MPI_BYTE, round % size, MPI_COMM_WORLD));
        CHECK(holds(good, BYTES, (unsigned)round));
        fill(good, BYTES, (unsigned)(round + rank));
        OK(MPI_Gather(good, BYTES, MPI_BYTE, into, BYTES, MPI_BYTE, round % size, MPI_COMM_WORLD));
        for (int r = 0; round % size == rank && r < size; r++)
            CHECK(holds(into + (size_t)r * BYTES, BYTES, (unsigned)(round + r)));
    }
}

int main(int argc, char **argv)
{
    begin(&argc, &argv);
    good = memory_of(BYTES);
    into = memory_of((size_t)size * BYTES);
    bad = mmap(NULL, (size_t)size * BYTES, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    CHECK(bad != MAP_FAILED);
    goes_on();
    int last = size - 1;
    /* The root has lent it: all others fail. */
    int code = MPI_Scatter(bad, BYTES, MPI_BYTE, rank == 0 ? MPI_IN_PLACE : good, BYTES, MPI_BYTE, 0, MPI_COMM_WORLD);
    CHECK(rank == 0 || class_of(code) == MPI_ERR_BUFFER);
    goes_on();
    /* One of them has no memory for it. */
    code = MPI_Scatter(into, BYTES, MPI_BYTE, rank == last ? bad : good, BYTES, MPI_BYTE, 0, MPI_COMM_WORLD);
    CHECK(class_of(code) == (rank == last ? MPI_ERR_BUFFER : MPI_SUCCESS));
    goes_on();
    /* The root does not take a part for there that one could not write. */
    code = MPI_Gather(rank == last ? bad : good, BYTES, MPI_BYTE, into, BYTES, MPI_BYTE, 0, MPI_COMM_WORLD);
    CHECK(rank == 0 ? code != MPI_SUCCESS : class_of(code) == (rank == last ? MPI_ERR_BUFFER : MPI_SUCCESS));
    goes_on();
    return end();
}
