/* A target that computes, and calls nothing of MPI, is put to, got from and locked all the same.
 * ranks: 2
 * timeout: 60
 */
#include "check.h"

/* Memory that the library gives out, or the program's own, where only put and get need no help on one host. */
static void computing(int own, int accumulates) {
    int rank, one = 1, seen = 0;
    volatile int *base;
    void *start;
    MPI_Win win;
    OK(MPI_Comm_rank(MPI_COMM_WORLD, &rank));
    if (own) {
        start = calloc(4, sizeof(int));
        OK(MPI_Win_create(start, 4 * sizeof(int), sizeof(int), MPI_INFO_NULL, MPI_COMM_WORLD, &win));
    } else {
        OK(MPI_Win_allocate(4 * sizeof(int), sizeof(int), MPI_INFO_NULL, MPI_COMM_WORLD, &start, &win));
    }
    base = start;
    OK(MPI_Barrier(MPI_COMM_WORLD));
    if (rank == 0) {
        while (base[0] == 0) {
        }
        base[1] = 2;
        while (base[2] == 0) {
        }
    } else {
        OK(MPI_Win_lock(MPI_LOCK_EXCLUSIVE, 0, 0, win));
        OK(MPI_Put(&one, 1, MPI_INT, 0, 0, 1, MPI_INT, win));
        OK(MPI_Win_flush(0, win));
        while (seen != 2) {
            OK(MPI_Get(&seen, 1, MPI_INT, 0, 1, 1, MPI_INT, win));
            OK(MPI_Win_flush(0, win));
        }
        if (accumulates)
            OK(MPI_Accumulate(&one, 1, MPI_INT, 0, 2, 1, MPI_INT, MPI_SUM, win));
        else
            OK(MPI_Put(&one, 1, MPI_INT, 0, 2, 1, MPI_INT, win));
        OK(MPI_Win_unlock(0, win));
    }
    OK(MPI_Win_free(&win));
    if (own) free(start);
}

int main(int argc, char **argv) {
    OK(MPI_Init(&argc, &argv));
    computing(0, 1);
    computing(0, 0);
    computing(1, argc > 1);
    OK(MPI_Finalize());
    return 0;
}
