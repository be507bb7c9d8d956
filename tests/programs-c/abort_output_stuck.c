/* A stream that another thread holds locked does not keep MPI_Abort from ending the job; a fatal error flushes as well.
 * ranks: 2
 * status: 7
 * cflags: -pthread
 */
#include "check.h"
#include <pthread.h>
#include <unistd.h>

static int fd[2];

static void *hold(void *unused) {
    flockfile(stdout);
    (void)!write(fd[1], "x", 1);
    for (;;)
        pause();
    return unused;
}

int main(int argc, char **argv) {
    int rank;
    char byte;
    pthread_t thread;
    OK(MPI_Init(&argc, &argv));
    OK(MPI_Comm_rank(MPI_COMM_WORLD, &rank));
    if (rank == 1) {
        CHECK(pipe(fd) == 0);
        CHECK(pthread_create(&thread, NULL, hold, NULL) == 0);
        CHECK(read(fd[0], &byte, 1) == 1);
        MPI_Abort(MPI_COMM_WORLD, 7);
    }
    OK(MPI_Barrier(MPI_COMM_WORLD));
    OK(MPI_Finalize());
    return 0;
}
