/* Communicators made, used and freed far more often than there is room for at once: nothing may run out.
 * ranks: 1 2 4
 * timeout: 120
 */
#include "world.h"

#include <sys/resource.h>

static long resident_kib(void)
{
    struct rusage usage;
    getrusage(RUSAGE_SELF, &usage);
    return usage.ru_maxrss;
}

int main(int argc, char **argv)
{
    begin(&argc, &argv);
    long before = 0;
    for (int round = 0; round < 16000; round++) {
        MPI_Comm copy;
        int sum;
        OK(MPI_Comm_dup(MPI_COMM_WORLD, &copy));
        OK(MPI_Allreduce(&rank, &sum, 1, MPI_INT, MPI_SUM, copy));
        CHECK(sum == size * (size - 1) / 2);
        OK(MPI_Bcast(&sum, 1, MPI_INT, round % size, copy));
        OK(MPI_Comm_free(&copy));
        if (round == 8000)
            before = resident_kib();
    }
    /* The first rounds have touched all rings; 8000 more cost next to nothing. */
    CHECK(resident_kib() - before < 1000);
    return end();
}
