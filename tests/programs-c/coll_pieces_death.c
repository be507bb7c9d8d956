/* A rank that ends while it sends the pieces of a long broadcast to all others, or reads them: the others get an error, also those who wait for it to read.
 * ranks: 3 4
 * timeout: 60
 * status: 7
 */
#include "world.h"

#include <signal.h>
#include <sys/time.h>
#include <unistd.h>

enum { LONGS = 1 << 18 };

static void ends(int signal)
{
    (void)signal;
    _exit(7);
}

int main(int argc, char **argv)
{
    begin(&argc, &argv);
    long *data = memory_of(LONGS * sizeof *data);
    if (rank == size - 1) {
        struct itimerval once = {.it_value = {.tv_usec = 100000}};
        CHECK(signal(SIGALRM, ends) != SIG_ERR && setitimer(ITIMER_REAL, &once, NULL) == 0);
    }
    int code = MPI_SUCCESS;
    for (int round = 0; code == MPI_SUCCESS; round++)
        code = MPI_Bcast(data, LONGS, MPI_LONG, round % 2 ? size - 1 : 0, MPI_COMM_WORLD);
    pause();
    return 1;
}
