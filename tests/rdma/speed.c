/* One way of 8 bytes, microseconds, and bandwidth of 64 KiB and 1 MiB messages in windows of 16, MB/s: medians of several rounds. */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>

enum { ROUNDS = 9, WINDOW = 16 };

static int me;

static int less(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static double latency_us(int turns) {
    char word[8] = {0};
    double start = MPI_Wtime();
    for (int turn = 0; turn < turns; turn++) {
        if (me == 0)
            MPI_Send(word, 8, MPI_BYTE, 1, 0, MPI_COMM_WORLD);
        MPI_Recv(word, 8, MPI_BYTE, 1 - me, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        if (me == 1)
            MPI_Send(word, 8, MPI_BYTE, 0, 0, MPI_COMM_WORLD);
    }
    return (MPI_Wtime() - start) * 1e6 / turns / 2;
}

static double bandwidth(char *bytes, int count) {
    MPI_Request requests[WINDOW];
    double start = MPI_Wtime();
    for (int one = 0; one < WINDOW; one++) {
        char *at = bytes + (size_t)one * count;
        if (me == 0)
            MPI_Isend(at, count, MPI_BYTE, 1, 0, MPI_COMM_WORLD, requests + one);
        else
            MPI_Irecv(at, count, MPI_BYTE, 0, 0, MPI_COMM_WORLD, requests + one);
    }
    MPI_Waitall(WINDOW, requests, MPI_STATUSES_IGNORE);
    MPI_Sendrecv(NULL, 0, MPI_BYTE, 1 - me, 1, NULL, 0, MPI_BYTE, 1 - me, 1, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    return (double)WINDOW * count / (MPI_Wtime() - start) / 1e6;
}

int main(int argc, char **argv) {
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &me);
    double found[3][ROUNDS];
    char *bytes = calloc(WINDOW, 1 << 20);
    for (int round = 0; round < ROUNDS; round++) {
        found[0][round] = latency_us(200);
        found[1][round] = bandwidth(bytes, 64 << 10);
        found[2][round] = bandwidth(bytes, 1 << 20);
    }
    for (int at = 0; at < 3; at++)
        qsort(found[at], ROUNDS, sizeof found[at][0], less);
    if (me == 0)
        printf("8 bytes one way %.1f us, 64 KiB messages %.0f MB/s, 1 MiB messages %.0f MB/s\n", found[0][ROUNDS / 2], found[1][ROUNDS / 2], found[2][ROUNDS / 2]);
    free(bytes);
    MPI_Finalize();
}
