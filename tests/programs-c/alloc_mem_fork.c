/* Ranks that fork while messages fly from and to memory that peers map: a child has a copy of its own, of the moment of the fork, in which it writes; the
 * parent and its peers write to theirs. No byte of either is wrong. Children fork too. WHIMBREL_TEST_SCALE=250: 10,000 forks.
 * env: WHIMBREL_MAP_MEMORY=on
 * ranks: 2
 * timeout: 600
 */
#include "world.h"

#include <sys/wait.h>
#include <unistd.h>

enum { BYTES = 300000, FORKS = 20 };

static void ended_well(pid_t child)
{
    int status;
    CHECK(child > 0);
    CHECK(waitpid(child, &status, 0) == child);
    CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 0);
}

int main(int argc, char **argv)
{
    begin(&argc, &argv);
    const char *scale = getenv("WHIMBREL_TEST_SCALE");
    int forks = (int)(FORKS * (scale ? atof(scale) : 1)), peer = 1 - rank;
    if (forks < FORKS)
        forks = FORKS;
    unsigned char *out, *in, *own;
    OK(MPI_Alloc_mem(BYTES, MPI_INFO_NULL, &out));
    OK(MPI_Alloc_mem(BYTES, MPI_INFO_NULL, &in));
    OK(MPI_Alloc_mem(BYTES, MPI_INFO_NULL, &own));
    fflush(NULL);
    for (int round = 0; round < forks; round++) {
        MPI_Request requests[2];
        fill(out, BYTES, (unsigned)(2 * round + rank));
        fill(own, BYTES, (unsigned)(round + 5));
        OK(MPI_Irecv(in, BYTES, MPI_BYTE, peer, 0, MPI_COMM_WORLD, &requests[0]));
        OK(MPI_Isend(out, BYTES, MPI_BYTE, peer, 0, MPI_COMM_WORLD, &requests[1]));
        pid_t child = fork();
        if (child == 0) {
            /* The parent writes there at the same time. */
            if (!holds(out, BYTES, (unsigned)(2 * round + rank)) || !holds(own, BYTES, (unsigned)(round + 5)))
                _exit(1);
            memset(out, 0xee, BYTES);
            memset(in, 0xee, BYTES);
            memset(own, 0xdd, BYTES);
            if (round % 8 == 0) {
                pid_t grandchild = fork();
                if (grandchild == 0) {
                    memset(own, 0xcc, BYTES);
                    _exit(all_bytes(out, BYTES, 0xee) ? 0 : 1);
                }
                int status;
                if (waitpid(grandchild, &status, 0) != grandchild || status != 0)
                    _exit(2);
            }
            _exit(all_bytes(out, BYTES, 0xee) && all_bytes(in, BYTES, 0xee) && all_bytes(own, BYTES, 0xdd) ? 0 : 3);
        }
        memset(own, 0x11, BYTES);
        OK(MPI_Waitall(2, requests, MPI_STATUSES_IGNORE));
        CHECK(holds(in, BYTES, (unsigned)(2 * round + peer)));
        memset(in, 0, BYTES);
        ended_well(child);
        CHECK(all_bytes(in, BYTES, 0) && all_bytes(own, BYTES, 0x11) && holds(out, BYTES, (unsigned)(2 * round + rank)));
    }
    OK(MPI_Free_mem(out));
    OK(MPI_Free_mem(in));
    OK(MPI_Free_mem(own));
    return end();
}
