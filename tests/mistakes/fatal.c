/* Programs whose ranks call different collectives, with the error handler that all programs have at the start: `fatal NAME`, for mismatch.py. */
#include <mpi.h>
#include <stdio.h>
#include <string.h>

int main(int argc, char **argv)
{
    int rank, in[10] = {1}, out[64], ranks, twenty[64], places[64];
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    const char *name = argc > 1 ? argv[1] : "";
    int other = rank == 1;
    if (!strcmp(name, "barrier_finalize")) {
        if (!other)
            MPI_Barrier(MPI_COMM_WORLD);
    } else if (!strcmp(name, "barrier_allreduce")) {
        if (other)
            MPI_Barrier(MPI_COMM_WORLD);
        else
            MPI_Allreduce(in, out, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
    } else if (!strcmp(name, "bcast_barrier")) {
        if (other)
            MPI_Barrier(MPI_COMM_WORLD);
        else
            MPI_Bcast(in, 1, MPI_INT, 0, MPI_COMM_WORLD);
    } else if (!strcmp(name, "counts")) {
        MPI_Allreduce(in, out, other ? 10 : 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
    } else if (!strcmp(name, "gather_lengths")) {
        for (int r = 0; r < ranks; r++) {
            twenty[r] = 5;
            places[r] = 5 * r;
        }
        MPI_Gatherv(in, other ? 10 : 5, MPI_INT, out, twenty, places, MPI_INT, 0, MPI_COMM_WORLD);
    } else {
        MPI_Abort(MPI_COMM_WORLD, 2);
    }
    MPI_Finalize();
    printf("rank %d has finalized\n", rank);
    return 0;
}
