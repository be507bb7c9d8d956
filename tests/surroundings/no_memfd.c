/* A sandbox refuses memfd_create to some of the ranks: files without a name serve instead, and ranks with and without them share memory.
 * ranks: 1 2 3
 */
#include "../programs-c/world.h"
#include "refuse.inc"

#include <dirent.h>
#include <sys/stat.h>
#include <unistd.h>

enum { BYTES = 4 << 20 };

/* Whether a descriptor of this process is a file that `begins` so and has no name any more. */
static int holds_file(const char *begins)
{
    char path[300], target[300];
    int found = 0;
    DIR *all = opendir("/proc/self/fd");
    CHECK(all != NULL);
    for (struct dirent *entry; (entry = readdir(all)) != NULL;) {
        snprintf(path, sizeof path, "/proc/self/fd/%s", entry->d_name);
        ssize_t length = readlink(path, target, sizeof target - 1);
        target[length > 0 ? length : 0] = 0;
        found |= strncmp(target, begins, strlen(begins)) == 0 && strstr(target, "(deleted)") != NULL;
    }
    closedir(all);
    return found;
}

int main(int argc, char **argv)
{
    const char *mine = getenv("WHIMBREL_RANK");
    CHECK(mine != NULL);
    /* The last rank is outside of the sandbox where there are three. */
    int inside = atoi(mine) < 2;
    if (inside)
        CHECK(refuse(SYS_memfd_create, atoi(mine) ? ENOSYS : EPERM));
    begin(&argc, &argv);
    CHECK(holds_file(inside ? "/dev/shm/" : "/memfd:whimbrel"));
    unsigned char *out = memory_of(BYTES), *in = memory_of(BYTES);
    for (int bytes = 1; bytes <= BYTES; bytes *= 4)
        for (int peer = 0; peer < size; peer++) {
            fill(out, (size_t)bytes, (unsigned)rank);
            OK(MPI_Sendrecv(out, bytes, MPI_BYTE, (rank + peer) % size, 0, in, bytes, MPI_BYTE, (rank + size - peer) % size, 0,
                            MPI_COMM_WORLD, MPI_STATUS_IGNORE));
            CHECK(holds(in, (size_t)bytes, (unsigned)((rank + size - peer) % size)));
        }
    int sum;
    OK(MPI_Allreduce(&rank, &sum, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD));
    CHECK(sum == size * (size - 1) / 2);
    return end();
}
