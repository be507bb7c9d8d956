/* A send is taken back, and a long one to a process whose room for messages that it has not asked for is used up.
 * ranks: 2
 */
#include "world.h"

enum { TAG_CROWD = 1, TAG = 2, TAG_GO = 3, MANY = 80, BYTES = 16000, LONG = 1 << 20 };

int main(int argc, char **argv)
{
    static unsigned char crowd[BYTES], data[LONG];
    MPI_Request requests[MANY], request;
    MPI_Status status;
    int flag;
    begin(&argc, &argv);
    for (int bytes = 4; bytes <= LONG; bytes += LONG - 4) {
        if (rank == 0) {
            for (int i = 0; i < MANY; i++)
                OK(MPI_Isend(crowd, BYTES, MPI_BYTE, 1, TAG_CROWD, MPI_COMM_WORLD, &requests[i]));
            OK(MPI_Issend(data, bytes, MPI_BYTE, 1, TAG, MPI_COMM_WORLD, &request));
            OK(MPI_Cancel(&request));
            OK(MPI_Wait(&request, &status));
            OK(MPI_Test_cancelled(&status, &flag));
            CHECK(flag);
            OK(MPI_Send(NULL, 0, MPI_BYTE, 1, TAG_GO, MPI_COMM_WORLD));
            OK(MPI_Waitall(MANY, requests, MPI_STATUSES_IGNORE));
        } else {
            OK(MPI_Recv(NULL, 0, MPI_BYTE, 0, TAG_GO, MPI_COMM_WORLD, &status));
            for (int i = 0; i < MANY; i++)
                OK(MPI_Recv(crowd, BYTES, MPI_BYTE, 0, TAG_CROWD, MPI_COMM_WORLD, MPI_STATUS_IGNORE));
        }
        OK(MPI_Barrier(MPI_COMM_WORLD));
    }
    return end();
}
