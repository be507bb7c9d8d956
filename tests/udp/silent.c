/* A peer that answers on no network fails, and so does everything that waits for it: within the time that was set, and by the class for it.
 * ranks: 2 3
 * env: WHIMBREL_FABRIC=udp WHIMBREL_PEER_TIMEOUT=700
 * status: nonzero
 * output: all that waited has ended
 */
#include "../programs-c/world.h"

#include <signal.h>
#include <unistd.h>

enum { BYTES = 1 << 20 };

static int class_of(int code)
{
    int class;
    MPI_Error_class(code, &class);
    return class;
}

int main(int argc, char **argv)
{
    begin(&argc, &argv);
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
    int pid = (int)getpid();
    if (rank == 1) {
        OK(MPI_Send(&pid, 1, MPI_INT, 0, 1, MPI_COMM_WORLD));
        raise(SIGSTOP);
        return 1;
    }
    if (rank == 2) {
        OK(MPI_Recv(&pid, 1, MPI_INT, 0, 2, MPI_COMM_WORLD, MPI_STATUS_IGNORE));
        return 1;
    }
    OK(MPI_Recv(&pid, 1, MPI_INT, 1, 1, MPI_COMM_WORLD, MPI_STATUS_IGNORE));
    char *sent = memory_of(BYTES), *received = memory_of(BYTES);
    MPI_Request requests[3];
    OK(MPI_Irecv(received, BYTES, MPI_BYTE, 1, 3, MPI_COMM_WORLD, &requests[0]));
    OK(MPI_Isend(sent, BYTES, MPI_BYTE, 1, 4, MPI_COMM_WORLD, &requests[1]));
    OK(MPI_Issend(sent, 1, MPI_BYTE, 1, 5, MPI_COMM_WORLD, &requests[2]));
    double start = MPI_Wtime();
    for (int i = 0; i < 3; i++)
        CHECK(class_of(MPI_Wait(&requests[i], MPI_STATUS_IGNORE)) == MPI_ERR_PROC_ABORTED);
    CHECK(class_of(MPI_Send(sent, 1, MPI_BYTE, 1, 6, MPI_COMM_WORLD)) == MPI_ERR_PROC_ABORTED);
    printf("all that waited has ended after %.1f s\n", MPI_Wtime() - start);
    fflush(stdout);
    kill(pid, SIGKILL);
    return 1;
}
