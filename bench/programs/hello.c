/* Start-up: init, barrier, finalize. The driver times the whole job.
 *
 * With the argument `memory`, also reports the private memory of the ranks (clean and dirty pages that no other process
 * maps, from /proc/self/smaps_rollup) after the barrier; that run is not timed.
 */
#include "measure.h"

static long private_kib(void)
{
    FILE *file = fopen("/proc/self/smaps_rollup", "r");
    char line[256];
    long total = 0, value;

    if (file == NULL)
        return -1;
    while (fgets(line, sizeof line, file) != NULL)
        if (sscanf(line, "Private_Clean: %ld", &value) == 1 || sscanf(line, "Private_Dirty: %ld", &value) == 1)
            total += value;
    fclose(file);
    return total;
}

int main(int argc, char **argv)
{
    MPI_Init(&argc, &argv);
    MPI_Barrier(MPI_COMM_WORLD);
    if (argc > 1 && strcmp(argv[1], "memory") == 0) {
        long mine = private_kib(), most = 0, sum = 0;
        MPI_Reduce(&mine, &most, 1, MPI_LONG, MPI_MAX, 0, MPI_COMM_WORLD);
        MPI_Reduce(&mine, &sum, 1, MPI_LONG, MPI_SUM, 0, MPI_COMM_WORLD);
        if (world_rank() == 0)
            printf("{\"bench\": \"memory\", \"ranks\": %d, \"private_kib_max\": %ld, \"private_kib_mean\": %ld}\n",
                   world_size(), most, sum / world_size());
    }
    MPI_Finalize();
    return 0;
}
