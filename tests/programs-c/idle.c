/* Ranks that are blocked for seconds leave the cores to others, whatever they wait for. CPU time is measured, not time.
 * ranks: 2 4
 * timeout: 120
 */
#include "world.h"

#include <sys/resource.h>

enum { NAP_MS = 1500, LARGE = 8 << 20, FLOOD = 30000 };

static double cpu_s(void)
{
    struct rusage usage;
    getrusage(RUSAGE_SELF, &usage);
    return (double)usage.ru_utime.tv_sec + (double)usage.ru_stime.tv_sec +
           1e-6 * (double)(usage.ru_utime.tv_usec + usage.ru_stime.tv_usec);
}

static const char *what;
static double wall, cpu;

static void start(const char *name)
{
    OK(MPI_Barrier(MPI_COMM_WORLD));
    what = name;
    wall = MPI_Wtime();
    cpu = cpu_s();
}

/* One that polls uses at least two thirds of a core here; at rest a blocked rank uses hardly any, and up to a fifth while a flood of
 * datagrams comes back (42 % were seen on busy cores). */
static void stop(void)
{
    double waited = MPI_Wtime() - wall, used = cpu_s() - cpu;
    CHECK(waited > 0.5 * NAP_MS / 1000.0);
    if (used > 0.5 * waited)
        fprintf(stderr, "rank %d: %s used %.0f %% of a core\n", rank, what, 100 * used / waited);
    CHECK(used <= 0.5 * waited);
}

int main(int argc, char **argv)
{
    begin(&argc, &argv);
    int value = 0, sum;
    unsigned char *large = memory_of(LARGE);

    start("a receive");
    if (rank == 0) {
        nap_ms(NAP_MS);
        for (int peer = 1; peer < size; peer++)
            OK(MPI_Send(&value, 1, MPI_INT, peer, 1, MPI_COMM_WORLD));
    } else {
        OK(MPI_Recv(&value, 1, MPI_INT, 0, 1, MPI_COMM_WORLD, MPI_STATUS_IGNORE));
        stop();
    }

    start("a probe");
    if (rank == 0) {
        nap_ms(NAP_MS);
        for (int peer = 1; peer < size; peer++)
            OK(MPI_Send(&value, 1, MPI_INT, peer, 1, MPI_COMM_WORLD));
    } else {
        OK(MPI_Probe(MPI_ANY_SOURCE, MPI_ANY_TAG, MPI_COMM_WORLD, MPI_STATUS_IGNORE));
        stop();
        OK(MPI_Recv(&value, 1, MPI_INT, 0, 1, MPI_COMM_WORLD, MPI_STATUS_IGNORE));
    }

    start("a barrier");
    if (rank == 0)
        nap_ms(NAP_MS);
    OK(MPI_Barrier(MPI_COMM_WORLD));
    stop();

    start("an allreduce");
    if (rank == 0)
        nap_ms(NAP_MS);
    OK(MPI_Allreduce(&rank, &sum, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD));
    stop();
    CHECK(sum == size * (size - 1) / 2);

    start("a broadcast of much");
    if (rank == 0)
        nap_ms(NAP_MS);
    OK(MPI_Bcast(large, LARGE, MPI_BYTE, 0, MPI_COMM_WORLD));
    stop();

    /* The receiver does not look for a long time: it computes. */
    start("a synchronous send");
    if (rank == 0) {
        nap_ms(NAP_MS);
        for (int peer = 1; peer < size; peer++)
            OK(MPI_Recv(&value, 1, MPI_INT, peer, 1, MPI_COMM_WORLD, MPI_STATUS_IGNORE));
    } else {
        OK(MPI_Ssend(&value, 1, MPI_INT, 0, 1, MPI_COMM_WORLD));
        stop();
    }

    start("a large send");
    if (rank == 0) {
        nap_ms(NAP_MS);
        for (int peer = 1; peer < size; peer++)
            OK(MPI_Recv(large, LARGE, MPI_BYTE, peer, 1, MPI_COMM_WORLD, MPI_STATUS_IGNORE));
    } else {
        OK(MPI_Send(large, LARGE, MPI_BYTE, 0, 1, MPI_COMM_WORLD));
        stop();
    }

    start("a flood of sends");
    if (rank == 0) {
        nap_ms(NAP_MS);
        for (int peer = 1; peer < size; peer++)
            for (int i = 0; i < FLOOD; i++) {
                OK(MPI_Recv(large, 1000, MPI_BYTE, peer, 1, MPI_COMM_WORLD, MPI_STATUS_IGNORE));
            }
    } else {
        /* Until the receiver comes back, all but the first of these wait, one of them for most of that time. */
        int waited = 0;
        for (int i = 0; i < FLOOD; i++) {
            double from = MPI_Wtime(), used = cpu_s();
            OK(MPI_Send(large, 1000, MPI_BYTE, 0, 1, MPI_COMM_WORLD));
            if (MPI_Wtime() - from > 0.6 * NAP_MS / 1000.0) {
                wall = from;
                cpu = used;
                stop();
                waited = 1;
            }
        }
        CHECK(waited);
    }
    free(large);
    return end();
}
