/* A program that has used up its descriptors goes on with whom it has talked to: short messages, long ones, collectives, new communicators.
 * ranks: 2 4
 */
#include "world.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/resource.h>
#include <unistd.h>

enum { BYTES = 3 << 20 };

static unsigned char out[BYTES], in[BYTES];

static void talk(MPI_Comm comm, int round)
{
    static const int lengths[] = {8, 5000, 100000, BYTES};
    for (int i = 0; i < 4; i++)
        for (int apart = 0; apart < size; apart++) {
            int to = (rank + apart) % size, from = (rank + size - apart) % size;
            size_t bytes = (size_t)lengths[i];
            fill(out, bytes, (unsigned)(rank + round));
            OK(MPI_Sendrecv(out, lengths[i], MPI_BYTE, to, round, in, lengths[i], MPI_BYTE, from, round, comm, MPI_STATUS_IGNORE));
            CHECK(holds(in, bytes, (unsigned)(from + round)));
        }
    int sum;
    OK(MPI_Allreduce(&rank, &sum, 1, MPI_INT, MPI_SUM, comm));
    CHECK(sum == size * (size - 1) / 2);
}

int main(int argc, char **argv)
{
    struct rlimit limit;
    int held[512], count = 0;
    MPI_Comm comm;
    begin(&argc, &argv);
    talk(MPI_COMM_WORLD, 1);
    CHECK(getrlimit(RLIMIT_NOFILE, &limit) == 0);
    limit.rlim_cur = 256;
    CHECK(setrlimit(RLIMIT_NOFILE, &limit) == 0);
    while (count < 512 && (held[count] = open("/dev/null", O_RDONLY)) >= 0)
        count++;
    CHECK(count < 512 && errno == EMFILE);
    talk(MPI_COMM_WORLD, 2);
    OK(MPI_Comm_dup(MPI_COMM_WORLD, &comm));
    talk(comm, 3);
    OK(MPI_Comm_free(&comm));
    while (count > 0)
        close(held[--count]);
    talk(MPI_COMM_WORLD, 4);
    return end();
}
