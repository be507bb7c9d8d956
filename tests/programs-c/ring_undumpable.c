/* Processes without privileges that are not dumpable cannot read each other's memory: nothing goes that way.
 * ranks: 2 3
 * env: WHIMBREL_REPORT=1
 * output: (?s)\A(?!.*(receiver reads|both copy)).*rendezvous, pipelined
 */
#define _GNU_SOURCE
#include "world.h"

#include <grp.h>
#include <sys/prctl.h>
#include <unistd.h>

int main(int argc, char **argv)
{
    enum { BYTES_MAX = 3 << 20, NOBODY = 65534 };
    begin(&argc, &argv);
    /* Root may read anybody's memory. */
    if (geteuid() == 0)
        CHECK(setgroups(0, NULL) == 0 && setresgid(NOBODY, NOBODY, NOBODY) == 0 && setresuid(NOBODY, NOBODY, NOBODY) == 0);
    CHECK(prctl(PR_SET_DUMPABLE, 0) == 0);
    /* Nobody looks at anybody's memory before all are closed. */
    OK(MPI_Barrier(MPI_COMM_WORLD));
    unsigned char *out = memory_of(BYTES_MAX), *in = memory_of(BYTES_MAX);
    int to = (rank + 1) % size, from = (rank + size - 1) % size;
    for (int round = 0; round < 20; round++) {
        int bytes = round % 2 == 0 ? BYTES_MAX : 70000 * (round / 2 + 1) + round;
        fill(out, (size_t)bytes, (unsigned)(round * 5 + rank));
        OK(MPI_Sendrecv(out, bytes, MPI_BYTE, to, 0, in, bytes, MPI_BYTE, from, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE));
        CHECK(holds(in, (size_t)bytes, (unsigned)(round * 5 + from)));
    }
    free(out);
    free(in);
    return end();
}
