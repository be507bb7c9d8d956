/* What a program polls for, and never waits for, may be behind more messages than its sender may leave unmatched: it comes all the same, and so
 * does the end of a synchronous send to a process that floods this one meanwhile.
 * ranks: 2
 */
#include "world.h"

enum { TAG_CROWD = 1, TAG_LAST = 2, TAG_SYNC = 3, MANY = 80000 };

int main(int argc, char **argv)
{
    static MPI_Request requests[MANY];
    MPI_Request request;
    int value = 7, flag;
    begin(&argc, &argv);
    for (int how = 0; how < 3; how++) {
        if (rank == 0) {
            for (int i = 0; i < MANY; i++)
                OK(MPI_Isend(&value, 1, MPI_INT, 1, TAG_CROWD, MPI_COMM_WORLD, &requests[i]));
            if (how == 2)
                OK(MPI_Recv(&value, 1, MPI_INT, 1, TAG_SYNC, MPI_COMM_WORLD, MPI_STATUS_IGNORE));
            else
                OK(MPI_Send(&value, 1, MPI_INT, 1, TAG_LAST, MPI_COMM_WORLD));
            OK(MPI_Waitall(MANY, requests, MPI_STATUSES_IGNORE));
        } else {
            if (how == 2)
                OK(MPI_Issend(&value, 1, MPI_INT, 0, TAG_SYNC, MPI_COMM_WORLD, &request));
            else if (how == 1)
                OK(MPI_Irecv(&value, 1, MPI_INT, 0, TAG_LAST, MPI_COMM_WORLD, &request));
            for (flag = 0; !flag;) {
                if (how == 0)
                    OK(MPI_Iprobe(0, TAG_LAST, MPI_COMM_WORLD, &flag, MPI_STATUS_IGNORE));
                else
                    OK(MPI_Test(&request, &flag, MPI_STATUS_IGNORE));
            }
            if (how == 0)
                OK(MPI_Recv(&value, 1, MPI_INT, 0, TAG_LAST, MPI_COMM_WORLD, MPI_STATUS_IGNORE));
            for (int i = 0; i < MANY; i++)
                OK(MPI_Recv(&value, 1, MPI_INT, 0, TAG_CROWD, MPI_COMM_WORLD, MPI_STATUS_IGNORE));
            CHECK(value == 7);
        }
    }
    return end();
}
