/* Several threads of each rank work on one window and on windows of their own at once: sums by accumulates, tickets by fetches, exclusive locks, puts and gets
 * of parts that belong to one thread each.
 * ranks: 1 2 3 4
 * timeout: 120
 * cflags: -pthread
 */
#include "check.h"
#include <pthread.h>

enum { THREADS = 4, ROUNDS = 60, PART = 50, COUNTERS = 4, CELLS = COUNTERS + 8 * THREADS * PART };

static int rank, size;
/* Of all threads, of the program's own memory and of memory that the library made; then one window for each thread. */
static MPI_Win both[2], own[THREADS];
static long *memory[2], *mine[THREADS], plain[CELLS];
static MPI_Comm comms[THREADS];

static int part_of(int who, int thread) { return COUNTERS + (who * THREADS + thread) * PART; }

static void on_window(MPI_Win win, int thread, int round) {
    long one = 1, found = -1, pieces[PART], back[PART];
    int target = (rank + thread + round) % size;
    /* Counter 0 is a sum, 1 gives out tickets. */
    OK(MPI_Accumulate(&one, 1, MPI_LONG, target, 0, 1, MPI_LONG, MPI_SUM, win));
    OK(MPI_Fetch_and_op(&one, &found, MPI_LONG, target, 1, MPI_SUM, win));
    for (int i = 0; i < PART; i++) pieces[i] = ((rank * THREADS + thread) * 1000L + round) * PART + i;
    OK(MPI_Put(pieces, PART, MPI_LONG, target, part_of(rank, thread), PART, MPI_LONG, win));
    OK(MPI_Win_flush(target, win));
    CHECK(found >= 0 && found < (long)ROUNDS * THREADS * size);
    memset(back, 0, sizeof back);
    if (round % 2) {
        OK(MPI_Get(back, PART, MPI_LONG, target, part_of(rank, thread), PART, MPI_LONG, win));
        OK(MPI_Win_flush(target, win));
    } else {
        MPI_Request request;
        OK(MPI_Rget(back, PART, MPI_LONG, target, part_of(rank, thread), PART, MPI_LONG, win, &request));
        OK(MPI_Wait(&request, MPI_STATUS_IGNORE));
    }
    CHECK(!memcmp(back, pieces, sizeof back));
}

static void *work(void *argument) {
    int thread = (int)(long)argument;
    for (int round = 0; round < ROUNDS; round++) {
        on_window(both[round % 2], thread, round);
        /* Alone with a counter that is read, changed and written. */
        int target = (rank + round) % size;
        long value;
        OK(MPI_Win_lock(MPI_LOCK_EXCLUSIVE, target, 0, own[thread]));
        OK(MPI_Get(&value, 1, MPI_LONG, target, 0, 1, MPI_LONG, own[thread]));
        OK(MPI_Win_flush(target, own[thread]));
        value++;
        OK(MPI_Put(&value, 1, MPI_LONG, target, 0, 1, MPI_LONG, own[thread]));
        OK(MPI_Win_unlock(target, own[thread]));
        if (round % 10 == thread) {
            OK(MPI_Win_fence(0, own[thread]));
            OK(MPI_Win_fence(MPI_MODE_NOSUCCEED, own[thread]));
        }
    }
    return NULL;
}

int main(int argc, char **argv) {
    int provided;
    pthread_t threads[THREADS];
    OK(MPI_Init_thread(&argc, &argv, MPI_THREAD_MULTIPLE, &provided));
    CHECK(provided == MPI_THREAD_MULTIPLE);
    OK(MPI_Comm_rank(MPI_COMM_WORLD, &rank));
    OK(MPI_Comm_size(MPI_COMM_WORLD, &size));
    CHECK(size <= 8);
    memory[0] = plain;
    OK(MPI_Win_create(plain, sizeof plain, sizeof(long), MPI_INFO_NULL, MPI_COMM_WORLD, &both[0]));
    OK(MPI_Win_allocate(sizeof plain, sizeof(long), MPI_INFO_NULL, MPI_COMM_WORLD, &memory[1], &both[1]));
    memset(memory[1], 0, sizeof plain);
    for (int t = 0; t < THREADS; t++) {
        OK(MPI_Comm_dup(MPI_COMM_WORLD, &comms[t]));
        OK(MPI_Win_allocate(sizeof(long), sizeof(long), MPI_INFO_NULL, comms[t], &mine[t], &own[t]));
        *mine[t] = 0;
    }
    OK(MPI_Barrier(MPI_COMM_WORLD));
    for (int w = 0; w < 2; w++) OK(MPI_Win_lock_all(0, both[w]));
    for (long t = 0; t < THREADS; t++) CHECK(!pthread_create(&threads[t], NULL, work, (void *)t));
    for (int t = 0; t < THREADS; t++) CHECK(!pthread_join(threads[t], NULL));
    for (int w = 0; w < 2; w++) OK(MPI_Win_unlock_all(both[w]));
    OK(MPI_Barrier(MPI_COMM_WORLD));
    long sums[3] = {0, 0, 0}, all[3];
    for (int w = 0; w < 2; w++) {
        sums[0] += memory[w][0];
        sums[1] += memory[w][1];
    }
    for (int t = 0; t < THREADS; t++) sums[2] += *mine[t];
    OK(MPI_Allreduce(sums, all, 3, MPI_LONG, MPI_SUM, MPI_COMM_WORLD));
    for (int i = 0; i < 3; i++) CHECK(all[i] == (long)ROUNDS * THREADS * size);
    for (int t = 0; t < THREADS; t++) {
        OK(MPI_Win_free(&own[t]));
        OK(MPI_Comm_free(&comms[t]));
    }
    for (int w = 0; w < 2; w++) OK(MPI_Win_free(&both[w]));
    OK(MPI_Finalize());
    return 0;
}
