/* Share of a core that a rank uses while it is blocked in MPI_Recv for SLEEP_S and its peer sleeps. */
#include "measure.h"

#include <sys/resource.h>
#include <time.h>

enum { SLEEP_S = 1 };

static double cpu_s(void)
{
    struct rusage usage;
    getrusage(RUSAGE_SELF, &usage);
    return (double)(usage.ru_utime.tv_sec + usage.ru_stime.tv_sec) +
           (double)(usage.ru_utime.tv_usec + usage.ru_stime.tv_usec) * 1e-6;
}

int main(int argc, char **argv)
{
    MPI_Init(&argc, &argv);
    need_two_ranks();
    MPI_Barrier(MPI_COMM_WORLD);
    if (world_rank() == 0) {
        double blocked[2];
        struct timespec pause = {SLEEP_S, 0};
        nanosleep(&pause, NULL);
        MPI_Send(NULL, 0, MPI_BYTE, 1, 1, MPI_COMM_WORLD);
        MPI_Recv(blocked, 2, MPI_DOUBLE, 1, 2, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        printf("{\"bench\": \"blocked\", \"ranks\": 2, \"wall_s\": %.6f, \"cpu_s\": %.6f, \"cpu_percent\": %.3f}\n",
               blocked[0], blocked[1], 100 * blocked[1] / blocked[0]);
    } else {
        double wall = MPI_Wtime(), cpu = cpu_s(), blocked[2];
        MPI_Recv(NULL, 0, MPI_BYTE, 0, 1, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        blocked[0] = MPI_Wtime() - wall;
        blocked[1] = cpu_s() - cpu;
        MPI_Send(blocked, 2, MPI_DOUBLE, 0, 2, MPI_COMM_WORLD);
    }
    MPI_Finalize();
    return 0;
}
