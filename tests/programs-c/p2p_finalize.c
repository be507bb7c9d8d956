/* A message sent just before MPI_Finalize arrives, though its receiver is late.
 * ranks: 2 4
 */
#include "world.h"

enum { BYTES = 100000 };

int main(int argc, char **argv)
{
    begin(&argc, &argv);
    unsigned char *buffer = memory_of(BYTES);
    static const int sizes[] = {0, 8, 1000, BYTES};
    for (int i = 0; i < 4; i++) {
        if (rank != 0) {
            MPI_Request request;
            fill(buffer, (size_t)sizes[i], (unsigned)(rank + i));
            if (i % 2) {
                OK(MPI_Isend(buffer, sizes[i], MPI_BYTE, 0, i, MPI_COMM_WORLD, &request));
                OK(MPI_Wait(&request, MPI_STATUS_IGNORE));
            } else
                OK(MPI_Send(buffer, sizes[i], MPI_BYTE, 0, i, MPI_COMM_WORLD));
        } else {
            nap_ms(50);
            for (int peer = 1; peer < size; peer++) {
                OK(MPI_Recv(buffer, BYTES, MPI_BYTE, peer, i, MPI_COMM_WORLD, MPI_STATUS_IGNORE));
                CHECK(holds(buffer, (size_t)sizes[i], (unsigned)(peer + i)));
            }
        }
    }
    free(buffer);
    return end();
}
