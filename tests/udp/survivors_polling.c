/* Who only asks, and never waits, finds out too that a process has failed: by MPI_Test, and by MPI_Iprobe.
 * ranks: 3
 * env: WHIMBREL_FABRIC=udp WHIMBREL_PEER_TIMEOUT=700
 * status: nonzero
 * output: found out
 * timeout: 30
 */
#include "../programs-c/world.h"

#include <signal.h>
#include <unistd.h>

enum { VICTIM = 1 };

int main(int argc, char **argv)
{
    begin(&argc, &argv);
    int pids[3], pid = (int)getpid(), word, flag = 0, code = MPI_SUCCESS, class;
    MPI_Request request;
    OK(MPI_Allgather(&pid, 1, MPI_INT, pids, 1, MPI_INT, MPI_COMM_WORLD));
    if (rank == VICTIM) {
        nap_ms(500); /* long enough for everything to be acknowledged */
        raise(SIGSTOP);
        return 1;
    }
    nap_ms(700);
    if (rank == 0) {
        OK(MPI_Irecv(&word, 1, MPI_INT, VICTIM, 1, MPI_COMM_WORLD, &request));
        while (code == MPI_SUCCESS && !flag)
            code = MPI_Test(&request, &flag, MPI_STATUS_IGNORE);
    } else {
        while (code == MPI_SUCCESS && !flag)
            code = MPI_Iprobe(MPI_ANY_SOURCE, 1, MPI_COMM_WORLD, &flag, MPI_STATUS_IGNORE);
    }
    CHECK(code != MPI_SUCCESS);
    OK(MPI_Error_class(code, &class));
    CHECK(class == MPI_ERR_PROC_ABORTED);
    printf("rank %d has found out\n", rank);
    fflush(stdout);
    OK(MPI_Finalize());
    if (rank == 0) {
        nap_ms(300);
        kill(pids[VICTIM], SIGKILL);
        nap_ms(100);
    }
    return 0;
}
