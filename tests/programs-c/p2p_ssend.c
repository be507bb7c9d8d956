/* A synchronous send does not complete before its receive is posted, at any size.
 * ranks: 2
 */
#include "counts.h"

enum { TAG = 1, TAG_GO = 2 };

int main(int argc, char **argv)
{
    begin(&argc, &argv);
    EACH_SIZE (bytes, 1 << 20) {
        unsigned char *buffer = memory_of((size_t)bytes);
        if (rank == 0) {
            MPI_Request request;
            int flag;
            fill(buffer, (size_t)bytes, 1);
            OK(MPI_Issend(buffer, bytes, MPI_BYTE, 1, TAG, MPI_COMM_WORLD, &request));
            for (int i = 0; i < 200; i++) {
                OK(MPI_Test(&request, &flag, MPI_STATUS_IGNORE));
                CHECK(!flag);
            }
            OK(MPI_Send(NULL, 0, MPI_BYTE, 1, TAG_GO, MPI_COMM_WORLD));
            OK(MPI_Wait(&request, MPI_STATUS_IGNORE));
            OK(MPI_Ssend(buffer, bytes, MPI_BYTE, 1, TAG, MPI_COMM_WORLD));
        } else {
            OK(MPI_Recv(NULL, 0, MPI_BYTE, 0, TAG_GO, MPI_COMM_WORLD, MPI_STATUS_IGNORE));
            for (int i = 0; i < 2; i++) {
                memset(buffer, 0, (size_t)bytes);
                OK(MPI_Recv(buffer, bytes, MPI_BYTE, 0, TAG, MPI_COMM_WORLD, MPI_STATUS_IGNORE));
                CHECK(holds(buffer, (size_t)bytes, 1));
            }
        }
        free(buffer);
    }
    return end();
}
