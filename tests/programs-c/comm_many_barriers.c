/* Communicators that come and go, each with short collectives: what they share is used again, and results stay right.
 * ranks: 2 3 8
 */
#include "world.h"

int main(int argc, char **argv)
{
    begin(&argc, &argv);
    for (int i = 0; i < 3000; i++) {
        MPI_Comm comm;
        int sum, local, out = rank + i;
        if (i % 3 == 0)
            OK(MPI_Comm_split(MPI_COMM_WORLD, rank % 2, 0, &comm));
        else
            OK(MPI_Comm_dup(MPI_COMM_WORLD, &comm));
        OK(MPI_Comm_size(comm, &local));
        OK(MPI_Allreduce(&out, &sum, 1, MPI_INT, MPI_SUM, comm));
        int expected = 0;
        for (int r = 0; r < size; r++)
            if (i % 3 != 0 || r % 2 == rank % 2)
                expected += r + i;
        CHECK(sum == expected);
        if (i % 2)
            OK(MPI_Barrier(comm));
        OK(MPI_Allreduce(&out, &sum, 1, MPI_INT, MPI_MAX, comm));
        OK(MPI_Comm_free(&comm));
    }
    return end();
}
