/* A process that stops with synchronous sends unmatched takes them with it, all of which had come: whether it is waited for alone, among others,
 * or polled for.
 * ranks: 4
 * env: WHIMBREL_FABRIC=udp WHIMBREL_PEER_TIMEOUT=700
 * status: nonzero
 * output: all three have heard of it
 */
#include "../programs-c/world.h"

#include <signal.h>
#include <unistd.h>

enum { VICTIM = 3, TAG = 1, TAG_GO = 2 };

int main(int argc, char **argv)
{
    MPI_Request request, requests[2];
    MPI_Status statuses[2];
    int value = 5, code, class, flag = 0, heard[3] = {0};
    signal(SIGUSR1, SIG_IGN);
    begin(&argc, &argv);
    if (rank == VICTIM) {
        for (int from = 0; from < VICTIM; from++) {
            OK(MPI_Probe(from, TAG, MPI_COMM_WORLD, MPI_STATUS_IGNORE));
            OK(MPI_Send(NULL, 0, MPI_BYTE, from, TAG_GO, MPI_COMM_WORLD));
        }
        nap_ms(100);
        raise(SIGSTOP);
        return 1;
    }
    OK(MPI_Issend(&value, 1, MPI_INT, VICTIM, TAG, MPI_COMM_WORLD, &request));
    OK(MPI_Recv(NULL, 0, MPI_BYTE, VICTIM, TAG_GO, MPI_COMM_WORLD, MPI_STATUS_IGNORE));
    if (rank == 0) {
        code = MPI_Wait(&request, MPI_STATUS_IGNORE);
    } else if (rank == 1) {
        requests[0] = request;
        OK(MPI_Irecv(&value, 1, MPI_INT, 0, TAG, MPI_COMM_SELF, &requests[1]));
        code = MPI_Waitany(2, requests, &flag, statuses);
        CHECK(flag == 0);
    } else {
        for (code = MPI_SUCCESS; code == MPI_SUCCESS && !flag;)
            code = MPI_Test(&request, &flag, MPI_STATUS_IGNORE);
    }
    CHECK(code != MPI_SUCCESS);
    OK(MPI_Error_class(code, &class));
    CHECK(class == MPI_ERR_PROC_ABORTED);
    for (int other = 0; other < 3; other++)
        OK(MPI_Sendrecv(&rank, 1, MPI_INT, other, TAG, &heard[other], 1, MPI_INT, other, TAG, MPI_COMM_WORLD, MPI_STATUS_IGNORE));
    if (rank == 0 && heard[1] == 1 && heard[2] == 2) {
        puts("all three have heard of it");
        fflush(stdout);
    }
    /* The one that has stopped keeps the job from ending otherwise. */
    nap_ms(200);
    MPI_Abort(MPI_COMM_WORLD, 1);
}
