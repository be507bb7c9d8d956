/* Messages of 64 to 96 KiB between memory of MPI_Alloc_mem are copied by both ranks, where each has a core.
 * ranks: 2
 * timeout: 60
 * launcher: --bind-to none
 * env: WHIMBREL_MAP_MEMORY=on WHIMBREL_REPORT=1
 * output: rendezvous, both copy +64.0 KiB to 1.0 MiB
 */
#define _GNU_SOURCE
#include <sched.h>

#include "world.h"

enum { MOST = 96 << 10, ROUNDS = 200 };

int main(int argc, char **argv)
{
    cpu_set_t processors;
    CHECK(sched_getaffinity(0, sizeof processors, &processors) == 0);
    if (CPU_COUNT(&processors) == 1 && getenv("LD_PRELOAD") == NULL) {
        puts("two ranks on one processor do not copy at the same time");
        return 77;
    }
    begin(&argc, &argv);
    unsigned char *buffer;
    OK(MPI_Alloc_mem(MOST, MPI_INFO_NULL, &buffer));
    for (int round = 0; round < ROUNDS; round++) {
        int bytes = (64 << 10) + round * ((MOST - (64 << 10)) / ROUNDS);
        if (rank == round % 2) {
            memset(buffer, round, (size_t)bytes);
            OK(MPI_Send(buffer, bytes, MPI_BYTE, 1 - rank, round, MPI_COMM_WORLD));
            continue;
        }
        memset(buffer, ~round, (size_t)bytes);
        OK(MPI_Recv(buffer, bytes, MPI_BYTE, 1 - rank, round, MPI_COMM_WORLD, MPI_STATUS_IGNORE));
        for (int at = 0; at < bytes; at++)
            if (buffer[at] != (unsigned char)round) {
                CHECK(buffer[at] == (unsigned char)round);
                break;
            }
    }
    OK(MPI_Free_mem(buffer));
    return end();
}
