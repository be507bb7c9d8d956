/* Threads that compute beside the one that calls MPI, under MPI_THREAD_FUNNELED; LEVEL may be another one below MPI_THREAD_MULTIPLE.
 * ranks: 1 2 3
 * cflags: -pthread
 */
#include "world.h"

#include <pthread.h>

#ifndef LEVEL
#define LEVEL MPI_THREAD_FUNNELED
#endif

enum { THREADS = 3, ROUNDS = 40, BYTES = 100000 };

static pthread_mutex_t one_at_a_time = PTHREAD_MUTEX_INITIALIZER;
static pthread_barrier_t all;
static unsigned char out[THREADS][BYTES], in[THREADS][BYTES];

/* One round of a ring, for the data of one thread. */
static void exchange(int thread, int round)
{
    int to = (rank + 1) % size, from = (rank + size - 1) % size;
    OK(MPI_Sendrecv(out[thread], BYTES, MPI_BYTE, to, thread, in[thread], BYTES, MPI_BYTE, from, thread, MPI_COMM_WORLD, MPI_STATUS_IGNORE));
    CHECK(holds(in[thread], BYTES, (unsigned)(from * 7 + thread * 3 + round)));
}

static void *work(void *argument)
{
    int thread = (int)(intptr_t)argument;
    for (int round = 0; round < ROUNDS; round++) {
        fill(out[thread], BYTES, (unsigned)(rank * 7 + thread * 3 + round));
        /* Under MPI_THREAD_SERIALIZED each thread calls in its turn, in the same order everywhere. */
        for (int turn = 0; turn < THREADS; turn++) {
            pthread_barrier_wait(&all);
            if (LEVEL == MPI_THREAD_SERIALIZED && turn == thread) {
                int is_main, level;
                pthread_mutex_lock(&one_at_a_time);
                OK(MPI_Is_thread_main(&is_main));
                OK(MPI_Query_thread(&level));
                CHECK(is_main == (thread == 0) && level >= LEVEL);
                exchange(thread, round);
                pthread_mutex_unlock(&one_at_a_time);
            } else if (LEVEL != MPI_THREAD_SERIALIZED && thread == 0)
                exchange(turn, round);
        }
        pthread_barrier_wait(&all);
    }
    return NULL;
}

int main(int argc, char **argv)
{
    int provided, level, is_main, wrong;
    pthread_t threads[THREADS];
    OK(MPI_Init_thread(&argc, &argv, LEVEL, &provided));
    OK(MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN));
    OK(MPI_Comm_rank(MPI_COMM_WORLD, &rank));
    OK(MPI_Comm_size(MPI_COMM_WORLD, &size));
    OK(MPI_Query_thread(&level));
    OK(MPI_Is_thread_main(&is_main));
    CHECK(provided >= LEVEL && level == provided && is_main == 1);
    /* The levels are in order (MPI-5.0 §11.6.2). */
    wrong = !(MPI_THREAD_SINGLE < MPI_THREAD_FUNNELED && MPI_THREAD_FUNNELED < MPI_THREAD_SERIALIZED && MPI_THREAD_SERIALIZED < MPI_THREAD_MULTIPLE);
    CHECK(!wrong);
    if (LEVEL == MPI_THREAD_SINGLE) {
        for (int round = 0; round < ROUNDS; round++) {
            fill(out[0], BYTES, (unsigned)(rank * 7 + round));
            exchange(0, round);
        }
        return end();
    }
    pthread_barrier_init(&all, NULL, THREADS);
    for (int i = 1; i < THREADS; i++)
        CHECK(pthread_create(&threads[i], NULL, work, (void *)(intptr_t)i) == 0);
    work(NULL);
    for (int i = 1; i < THREADS; i++)
        pthread_join(threads[i], NULL);
    return end();
}
