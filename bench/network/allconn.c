/* Every rank sends to every other, in a ring, as in the startup benchmark of paper 003 (§5.2.2, Figs. 5 and 6): how long that takes, and
 * how much private memory and how many descriptors a rank has after so many peers.
 *
 * Memory is read from /proc/self/smaps_rollup after a barrier and a pause in which a library may give back what it keeps for peers that
 * are spoken to. The clock stands meanwhile. A second ring over the same peers shows what is left when all of them are known.
 *
 * Arguments: pause_ms.
 */
#include "../overlap/work.h"
#include <dirent.h>
#include <fcntl.h>

enum { TAG_RING = 5 };

/* Bytes that this process alone has; 0 where the kernel does not tell. No stream, which would take memory itself. */
static double private_bytes(void)
{
    static char text[8192];
    int file = open("/proc/self/smaps_rollup", O_RDONLY);
    ssize_t length = file < 0 ? 0 : read(file, text, sizeof text - 1);
    double kib = 0;
    if (file >= 0)
        close(file);
    text[length > 0 ? length : 0] = 0;
    for (const char *line = text; (line = strstr(line, "\nPrivate_")) != NULL;) {
        line += strlen("\nPrivate_");
        const char *colon = strchr(line, ':');
        if (colon && (strncmp(line, "Clean", 5) == 0 || strncmp(line, "Dirty", 5) == 0))
            kib += atof(colon + 1);
    }
    return kib * 1024;
}

/* Files and sockets that are open; the folder's own and its two dots are none. */
static double descriptors(void)
{
    double count = -3;
    DIR *folder = opendir("/proc/self/fd");
    if (!folder)
        return 0;
    while (readdir(folder))
        count++;
    closedir(folder);
    return count;
}

/* Microseconds for the peers at distances `from` to `to`. */
static double ring_us(int from, int to)
{
    int rank = world_rank(), size = world_size();
    double start = now_us();
    for (int distance = from; distance <= to; distance++) {
        int left = (rank - distance + size) % size;
        MPI_Status status;
        MPI_Sendrecv(NULL, 0, MPI_BYTE, (rank + distance) % size, TAG_RING, NULL, 0, MPI_BYTE, left, TAG_RING, MPI_COMM_WORLD,
                     &status);
        if (status.MPI_SOURCE != left)
            fail("a message came from somebody else");
    }
    return now_us() - start;
}

/* What the library says of itself; 0 where it has no such variable. */
static double said(const char *name)
{
    MPI_T_pvar_handle handle;
    int bytes = counter_open(name, &handle);
    return bytes ? counter_value(handle, bytes) : 0;
}

/* Mean and largest over the ranks; on rank 0. */
static void over_ranks(double value, double *mean, double *most)
{
    MPI_Reduce(&value, mean, 1, MPI_DOUBLE, MPI_SUM, 0, MPI_COMM_WORLD);
    MPI_Reduce(&value, most, 1, MPI_DOUBLE, MPI_MAX, 0, MPI_COMM_WORLD);
    *mean /= world_size();
}

static double settled_bytes(double pause_ms)
{
    MPI_Barrier(MPI_COMM_WORLD);
    usleep((useconds_t)(pause_ms * 1e3));
    MPI_Barrier(MPI_COMM_WORLD);
    return private_bytes();
}

int main(int argc, char **argv)
{
    double start = now_us(), init_us, elapsed_us = 0, mean = 0, most = 0;
    MPI_Init(&argc, &argv);
    init_us = now_us() - start;
    double pause_ms = number(argc, argv, "pause_ms", 300);
    int rank = world_rank(), size = world_size();

    double before = settled_bytes(pause_ms);
    over_ranks(init_us, &mean, &most);
    if (rank == 0)
        printf("{\"bench\": \"allconn\", \"ranks\": %d, \"init_us\": %.0f, \"init_us_max\": %.0f, ", size, mean, most);
    over_ranks(before, &mean, &most);
    if (rank == 0)
        printf("\"private_before_bytes\": %.0f, \"private_before_bytes_max\": %.0f, \"points\": [", mean, most);
    for (int from = 1, to = 1; from < size; from = to + 1, to = 2 * to) {
        if (to > size - 1)
            to = size - 1;
        elapsed_us += ring_us(from, to);
        double bytes = settled_bytes(pause_ms);
        over_ranks(elapsed_us, &mean, &most);
        if (rank == 0)
            printf("%s{\"peers\": %d, \"elapsed_us\": %.1f, \"elapsed_us_max\": %.1f, ", from > 1 ? ", " : "", to, mean, most);
        over_ranks(bytes, &mean, &most);
        if (rank == 0)
            printf("\"private_bytes\": %.0f, \"private_bytes_max\": %.0f}", mean, most);
    }
    over_ranks(ring_us(1, size - 1), &mean, &most);
    if (rank == 0)
        printf("], \"again_us\": %.1f, ", mean);
    over_ranks(said("registrations_pool_bytes"), &mean, &most);
    if (rank == 0)
        printf("\"registered_bytes\": %.0f, \"registered_bytes_max\": %.0f, ", mean, most);
    over_ranks(said("registrations_queue_pairs"), &mean, &most);
    if (rank == 0)
        printf("\"queue_pairs\": %.1f, \"queue_pairs_max\": %.0f, ", mean, most);
    over_ranks(descriptors(), &mean, &most);
    if (rank == 0) {
        printf("\"descriptors\": %.1f}\n", mean);
        fflush(stdout);
    }
    MPI_Finalize();
    return 0;
}
