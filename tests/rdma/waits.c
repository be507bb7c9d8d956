/* `kill`: rank 1 kills itself while rank 0 waits for it. `talk`: two ranks send each other messages without end. */
#include <mpi.h>
#include <signal.h>
#include <string.h>

int main(int argc, char **argv) {
    int me, word = 0;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &me);
    int talks = argc > 1 && strcmp(argv[1], "talk") == 0;
    for (int round = 0; talks || round < 100; round++)
        MPI_Sendrecv_replace(&word, 1, MPI_INT, 1 - me, 0, 1 - me, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    if (me == 1)
        raise(SIGKILL);
    MPI_Recv(&word, 1, MPI_INT, 1, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    MPI_Finalize();
}
