/* Pairs of ranks, half the world apart, exchange pieces that tell where they belong: exchange MIB [PIECE_KIB [WINDOW]].
 * Rank 0 says when a quarter is through, and at the end how long it took and what was the longest time without a piece, of any rank. */
#include <mpi.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

enum { WINDOW_MAX = 256 };

static uint64_t word_of(int rank, long piece, size_t i)
{
    return ((uint64_t)rank << 56) + (uint64_t)piece * 0x9e3779b97f4a7c15u + i * 0x100000001b3u;
}

static void wrong(int rank, long piece, size_t i)
{
    printf("rank %d: piece %ld is WRONG at byte %zu\n", rank, piece, i * 8);
    fflush(stdout);
    MPI_Abort(MPI_COMM_WORLD, 9);
}

int main(int argc, char **argv)
{
    int rank, size;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    long mib = argc > 1 ? atol(argv[1]) : 16, kib = argc > 2 ? atol(argv[2]) : 1024, window = argc > 3 ? atol(argv[3]) : 16;
    long pieces = mib * 1024 / kib;
    size_t words = (size_t)kib * 128;
    int peer = (rank + size / 2) % size;
    uint64_t *in[WINDOW_MAX], *out[WINDOW_MAX];
    MPI_Request receives[WINDOW_MAX], sends[WINDOW_MAX];
    if (window > WINDOW_MAX || pieces < window) {
        fprintf(stderr, "a window of %ld pieces does not fit\n", window);
        MPI_Abort(MPI_COMM_WORLD, 2);
    }
    for (long slot = 0; slot < window; slot++) {
        in[slot] = calloc(words, 8);
        out[slot] = calloc(words, 8);
        sends[slot] = MPI_REQUEST_NULL;
        if (!in[slot] || !out[slot]) MPI_Abort(MPI_COMM_WORLD, 2);
    }
    MPI_Barrier(MPI_COMM_WORLD);
    double start = MPI_Wtime(), last = start, stall = 0, times[2], worst[2];
    for (long step = 0; step < pieces + window; step++) {
        long slot = step % window, done = step - window;
        if (done >= 0) {
            MPI_Wait(&receives[slot], MPI_STATUS_IGNORE);
            double now = MPI_Wtime();
            if (now - last > stall) stall = now - last;
            last = now;
            for (size_t i = 0; i < words; i++)
                if (in[slot][i] != word_of(peer, done, i)) wrong(rank, done, i);
            MPI_Wait(&sends[slot], MPI_STATUS_IGNORE);
            if (rank == 0 && done == pieces / 4) {
                puts("a quarter is through");
                fflush(stdout);
            }
        }
        if (step < pieces) {
            MPI_Irecv(in[slot], (int)(words * 8), MPI_BYTE, peer, 1, MPI_COMM_WORLD, &receives[slot]);
            for (size_t i = 0; i < words; i++) out[slot][i] = word_of(rank, step, i);
            MPI_Isend(out[slot], (int)(words * 8), MPI_BYTE, peer, 1, MPI_COMM_WORLD, &sends[slot]);
        }
    }
    times[0] = MPI_Wtime() - start;
    times[1] = stall;
    MPI_Reduce(times, worst, 2, MPI_DOUBLE, MPI_MAX, 0, MPI_COMM_WORLD);
    if (rank == 0)
        printf("exchange: each_way_mib=%ld seconds=%.3f each_way_mb_s=%.2f stall_ms=%.1f\n", mib, worst[0], (double)mib * 1.048576 / worst[0],
               worst[1] * 1e3);
    MPI_Finalize();
    return 0;
}
