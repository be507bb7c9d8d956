/* A rank that ends in the middle, while others copy from and to memory of its that they have mapped, and its freed blocks: nobody else is killed by a signal.
 * env: WHIMBREL_MAP_MEMORY=on
 * ranks: 3
 * status: 7
 */
#include "world.h"

#include <unistd.h>

enum { BYTES = 8 << 20 };

int main(int argc, char **argv)
{
    begin(&argc, &argv);
    unsigned char *out, *in;
    OK(MPI_Alloc_mem(BYTES, MPI_INFO_NULL, &out));
    OK(MPI_Alloc_mem(BYTES, MPI_INFO_NULL, &in));
    for (int round = 0;; round++) {
        MPI_Request requests[4];
        int others = 0;
        for (int peer = 0; peer < size; peer++)
            if (peer != rank) {
                OK(MPI_Irecv(in + peer * (BYTES / 4), BYTES / 4, MPI_BYTE, peer, 0, MPI_COMM_WORLD, &requests[others++]));
                OK(MPI_Isend(out, BYTES / 4, MPI_BYTE, peer, 0, MPI_COMM_WORLD, &requests[others++]));
            }
        if (rank == 1 && round == 30) {
            OK(MPI_Free_mem(out));
            OK(MPI_Free_mem(in));
            _exit(7);
        }
        if (MPI_Waitall(others, requests, MPI_STATUSES_IGNORE) != MPI_SUCCESS)
            pause();
    }
}
