/* Every kind of operation is under way between two ranks when the network goes: each must end in an error. Rank 0 says `posted`, and
 * then both say what became of each operation, and when, in seconds after. */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { LARGE = 64 << 20, SMALL = 64, KINDS = 8 };

int main(int argc, char **argv)
{
    int rank;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
    MPI_Comm_set_errhandler(MPI_COMM_SELF, MPI_ERRORS_RETURN);
    int peer = 1 - rank, small[SMALL] = {0}, sum;
    char *out = malloc(LARGE), *in = malloc(LARGE), *more = malloc(LARGE);
    if (!out || !in || !more) return 2;
    memset(out, 1, LARGE);
    /* All that a first use needs is there before the network goes. */
    MPI_Sendrecv(out, LARGE, MPI_BYTE, peer, 1, in, LARGE, MPI_BYTE, peer, 1, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    MPI_Barrier(MPI_COMM_WORLD);
    MPI_Comm quiet;
    MPI_Comm_dup(MPI_COMM_WORLD, &quiet);
    MPI_Comm_set_errhandler(quiet, MPI_ERRORS_RETURN);

    MPI_Request requests[KINDS];
    const char *names[KINDS] = {"receive", "synchronous send", "large send", "large receive", "barrier", "allreduce", "persistent receive", "receive of any"};
    MPI_Irecv(small, SMALL, MPI_INT, peer, 100, MPI_COMM_WORLD, &requests[0]);
    MPI_Issend(small, SMALL, MPI_INT, peer, 101, MPI_COMM_WORLD, &requests[1]);
    MPI_Isend(out, LARGE, MPI_BYTE, peer, 102, MPI_COMM_WORLD, &requests[2]);
    MPI_Irecv(more, LARGE, MPI_BYTE, peer, 103, MPI_COMM_WORLD, &requests[3]);
    /* Only rank 0 comes to these. */
    requests[4] = requests[5] = MPI_REQUEST_NULL;
    if (rank == 0) {
        MPI_Ibarrier(MPI_COMM_WORLD, &requests[4]);
        MPI_Iallreduce(small, &sum, 1, MPI_INT, MPI_SUM, quiet, &requests[5]);
    }
    MPI_Recv_init(small, SMALL, MPI_INT, peer, 104, MPI_COMM_WORLD, &requests[6]);
    MPI_Start(&requests[6]);
    MPI_Irecv(small, SMALL, MPI_INT, MPI_ANY_SOURCE, 105, quiet, &requests[7]);
    double start = MPI_Wtime();
    if (rank == 0) {
        puts("posted");
        fflush(stdout);
    }
    /* The last one is of any source, of which nobody who could send is left. */
    for (int kind = 0; kind < KINDS; kind++) {
        if (requests[kind] == MPI_REQUEST_NULL) continue;
        int status = MPI_Wait(&requests[kind], MPI_STATUS_IGNORE), class = MPI_SUCCESS;
        MPI_Error_class(status, &class);
        printf("rank %d: %s: %s after %.1f s\n", rank, names[kind], status == MPI_SUCCESS ? "done" : "error", MPI_Wtime() - start);
        fflush(stdout);
    }
    int status = MPI_Send(small, SMALL, MPI_INT, peer, 106, MPI_COMM_WORLD);
    printf("rank %d: send afterwards: %s after %.1f s\n", rank, status == MPI_SUCCESS ? "done" : "error", MPI_Wtime() - start);
    printf("rank %d: through\n", rank);
    fflush(stdout);
    _exit(0);
}
