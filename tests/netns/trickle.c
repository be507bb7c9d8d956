/* Two ranks pass a short message to and fro, one after a nap: trickle SECONDS [NAP_MS]. Rank 0 says when it has begun, and at the end the longest time for
 * one there and back. */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

int main(int argc, char **argv)
{
    int rank, word, more = 1;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    double seconds = argc > 1 ? atof(argv[1]) : 3, start = MPI_Wtime(), longest = 0;
    struct timespec nap = {0, (argc > 2 ? atol(argv[2]) : 10) * 1000000};
    for (int round = 0; more; round++) {
        double sent = MPI_Wtime();
        if (rank == 0) more = sent - start < seconds;
        word = 2 * round + more;
        if (rank == 0) MPI_Send(&word, 1, MPI_INT, 1, 0, MPI_COMM_WORLD);
        MPI_Recv(&word, 1, MPI_INT, 1 - rank, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        if (word / 2 != round) {
            printf("rank %d: round %d is WRONG: %d\n", rank, round, word);
            MPI_Abort(MPI_COMM_WORLD, 9);
        }
        more = word % 2;
        if (rank == 1) MPI_Send(&word, 1, MPI_INT, 0, 0, MPI_COMM_WORLD);
        else if (MPI_Wtime() - sent > longest) longest = MPI_Wtime() - sent;
        if (rank == 0 && round == 10) {
            puts("begun");
            fflush(stdout);
        }
        nanosleep(&nap, NULL);
    }
    if (rank == 0) printf("trickle: longest_ms=%.1f\n", longest * 1e3);
    MPI_Finalize();
    return 0;
}
