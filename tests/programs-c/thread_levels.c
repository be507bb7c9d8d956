/* The thread levels below MPI_THREAD_MULTIPLE: what is provided and who is the main thread; at MPI_THREAD_SERIALIZED several threads call in turn, at
 * MPI_THREAD_FUNNELED the others compute. LEVEL: 0, 1 or 2, here MPI_THREAD_SERIALIZED.
 * ranks: 1 2
 * cflags: -pthread
 * timeout: 60
 */
#include "world.h"

#ifndef LEVEL
#define LEVEL 2
#endif

#include <pthread.h>

enum { THREADS = 4, ROUNDS = 200, LONG = 200000 };

static pthread_mutex_t turn = PTHREAD_MUTEX_INITIALIZER;
static MPI_Comm comm;
static unsigned char out[LONG], in[LONG];

static void *ask(void *level)
{
    int main_thread = -1, provided = -1;
    OK(MPI_Is_thread_main(&main_thread));
    OK(MPI_Query_thread(&provided));
    CHECK(!main_thread && provided == *(int *)level);
    return NULL;
}

/* Short and long messages, a request that another turn completes, and collectives; every rank's threads in the same order. */
static void exchange(int number, MPI_Request *left)
{
    int next = (rank + 1) % size, last = (rank + size - 1) % size, sum = 0, one = 1, got = -1;
    fill(out, LONG, (unsigned)(rank + number));
    OK(MPI_Wait(left, MPI_STATUS_IGNORE));
    OK(MPI_Sendrecv(out, LONG, MPI_BYTE, next, 1, in, LONG, MPI_BYTE, last, 1, comm, MPI_STATUS_IGNORE));
    CHECK(holds(in, LONG, (unsigned)(last + number)));
    OK(MPI_Sendrecv(&number, 1, MPI_INT, next, 2, &got, 1, MPI_INT, last, 2, comm, MPI_STATUS_IGNORE));
    CHECK(got == number);
    OK(MPI_Allreduce(&one, &sum, 1, MPI_INT, MPI_SUM, comm));
    CHECK(sum == size);
    OK(MPI_Ibarrier(comm, left));
}

static int turns;
static MPI_Request left = MPI_REQUEST_NULL;

static void *serialized(void *unused)
{
    (void)unused;
    for (int mine = 0; mine < ROUNDS / THREADS; mine++) {
        pthread_mutex_lock(&turn);
        exchange(turns++, &left);
        pthread_mutex_unlock(&turn);
    }
    return NULL;
}

static volatile double computed[THREADS];

static void *compute(void *at)
{
    for (int i = 1; i < 1000000; i++)
        *(volatile double *)at += 1.0 / i;
    return NULL;
}

int main(int argc, char **argv)
{
    int levels[3] = {MPI_THREAD_SINGLE, MPI_THREAD_FUNNELED, MPI_THREAD_SERIALIZED}, level = levels[LEVEL], provided = -1, main_thread = 0;
    pthread_t threads[THREADS];
    OK(MPI_Init_thread(&argc, &argv, level, &provided));
    CHECK(provided == level);
    OK(MPI_Query_thread(&provided));
    OK(MPI_Is_thread_main(&main_thread));
    CHECK(provided == level && main_thread);
    OK(MPI_Comm_rank(MPI_COMM_WORLD, &rank));
    OK(MPI_Comm_size(MPI_COMM_WORLD, &size));
    OK(MPI_Comm_dup(MPI_COMM_WORLD, &comm));
    if (level != MPI_THREAD_SINGLE) {
        /* These may be called by any thread at any level above (MPI-5.0 §11.6.2). */
        pthread_create(&threads[0], NULL, ask, &level);
        pthread_join(threads[0], NULL);
    }
    for (int i = 0; i < THREADS && level != MPI_THREAD_SINGLE; i++)
        pthread_create(&threads[i], NULL, level == MPI_THREAD_SERIALIZED ? serialized : compute, (void *)&computed[i]);
    for (int i = 0; i < ROUNDS && level != MPI_THREAD_SERIALIZED; i++)
        exchange(turns++, &left);
    for (int i = 0; i < THREADS && level != MPI_THREAD_SINGLE; i++)
        pthread_join(threads[i], NULL);
    CHECK(turns == ROUNDS / THREADS * THREADS);
    OK(MPI_Wait(&left, MPI_STATUS_IGNORE));
    OK(MPI_Comm_free(&comm));
    return end();
}
