/* A rank that holds a lock of another one's window is lost: whoever waits for that lock, or asks the lost one for something, gets an error.
 * ranks: 3
 * env: WHIMBREL_FABRIC=udp WHIMBREL_PEER_TIMEOUT=700
 * status: nonzero
 * output: both have heard of it and finalized
 */
#include "../programs-c/check.h"

#include <errno.h>
#include <signal.h>
#include <unistd.h>

enum { VICTIM = 1 };

/* A process that has not stopped yet may still answer. */
static void await_stopped(int pid)
{
    char path[40], state = 0;
    snprintf(path, sizeof path, "/proc/%d/stat", pid);
    while (state != 'T') {
        FILE *file = fopen(path, "r");
        CHECK(file && fscanf(file, "%*d (%*[^)]) %c", &state) == 1);
        fclose(file);
        usleep(1000);
    }
}

int main(int argc, char **argv) {
    int rank, value = 1, word = 0, told = 0, pid = getpid(), pids[3];
    MPI_Win win;
    OK(MPI_Init(&argc, &argv));
    OK(MPI_Comm_rank(MPI_COMM_WORLD, &rank));
    OK(MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN));
    OK(MPI_Allgather(&pid, 1, MPI_INT, pids, 1, MPI_INT, MPI_COMM_WORLD));
    OK(MPI_Win_create(&word, sizeof word, 1, MPI_INFO_NULL, MPI_COMM_WORLD, &win));
    OK(MPI_Win_set_errhandler(win, MPI_ERRORS_RETURN));
    if (rank == VICTIM) {
        OK(MPI_Win_lock(MPI_LOCK_EXCLUSIVE, 0, 0, win));
        OK(MPI_Put(&value, 1, MPI_INT, 0, 0, 1, MPI_INT, win));
        OK(MPI_Win_flush(0, win));
        OK(MPI_Barrier(MPI_COMM_WORLD));
        raise(SIGSTOP);
    } else {
        OK(MPI_Barrier(MPI_COMM_WORLD));
        await_stopped(pids[VICTIM]);
        if (rank == 0) {
            CHECK(*(volatile int *)&word == 1);
            FAILS(MPI_ERR_PROC_ABORTED, MPI_Win_lock(MPI_LOCK_SHARED, VICTIM, 0, win));
        } else {
            /* The victim holds it. */
            FAILS(MPI_ERR_PROC_ABORTED, MPI_Win_lock(MPI_LOCK_SHARED, 0, 0, win));
        }
        FAILS(MPI_ERR_PROC_ABORTED, MPI_Win_lock_all(0, win));
        FAILS(MPI_ERR_PROC_ABORTED, MPI_Win_fence(0, win));
        /* The two that live still reach each other. */
        if (rank == 0) {
            OK(MPI_Send(&value, 1, MPI_INT, 2, 0, MPI_COMM_WORLD));
            OK(MPI_Recv(&told, 1, MPI_INT, 2, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE));
        } else {
            OK(MPI_Recv(&told, 1, MPI_INT, 0, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE));
            OK(MPI_Send(&value, 1, MPI_INT, 0, 0, MPI_COMM_WORLD));
        }
    }
    OK(MPI_Finalize());
    if (rank == 0) {
        while (kill(pids[2], 0) == 0 || errno != ESRCH) usleep(10000);
        puts("both have heard of it and finalized");
        fflush(stdout);
        kill(pids[VICTIM], SIGKILL);
        usleep(100000);
    }
    return 0;
}
