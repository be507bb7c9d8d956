/* MPI_THREAD_MULTIPLE: many threads make partitions ready and look for those that have come, while others send messages.
 * ranks: 1 2 4
 * cflags: -pthread
 * timeout: 120
 */
#include "world.h"

#include <pthread.h>

enum { THREADS = 5, EACH = 6, PARTS = THREADS * EACH, BYTES = 1500, HALVES = 2 * PARTS, ROUNDS = 40 };

static unsigned char *out, *in;
static MPI_Request requests[2];
static pthread_barrier_t line;
static int next, before;

static void *work(void *argument)
{
    int mine = (int)(intptr_t)argument;
    for (int round = 0; round < ROUNDS; round++) {
        if (mine == 0) {
            memset(in, 0, PARTS * BYTES);
            OK(MPI_Startall(2, requests));
        }
        pthread_barrier_wait(&line);
        for (int i = 0; i < EACH; i++) {
            int part = (mine + i * THREADS + round) % PARTS;
            fill(out + part * BYTES, BYTES, (unsigned)(part + round + rank));
            OK(MPI_Pready(part, requests[0]));
            if (i % 3 == 0) {
                int sent = mine, got = -1;
                OK(MPI_Sendrecv(&sent, 1, MPI_INT, next, mine, &got, 1, MPI_INT, before, mine, MPI_COMM_WORLD, MPI_STATUS_IGNORE));
                CHECK(got == mine);
            }
        }
        for (int i = 0; i < 2 * EACH; i++) {
            int half = (mine + i * THREADS) % HALVES, here = 0;
            while (!here)
                OK(MPI_Parrived(requests[1], half, &here));
            unsigned char whole[BYTES];
            fill(whole, BYTES, (unsigned)(half / 2 + round + before));
            CHECK(memcmp(in + half * (BYTES / 2), whole + half % 2 * (BYTES / 2), BYTES / 2) == 0);
        }
        pthread_barrier_wait(&line);
        if (mine == 1)
            OK(MPI_Wait(&requests[0], MPI_STATUS_IGNORE));
        if (mine == 0)
            OK(MPI_Wait(&requests[1], MPI_STATUS_IGNORE));
        pthread_barrier_wait(&line);
    }
    return NULL;
}

static void *wait_both(void *argument)
{
    OK(MPI_Waitall(2, requests, MPI_STATUSES_IGNORE));
    return argument;
}

int main(int argc, char **argv)
{
    begin_threaded(&argc, &argv, MPI_THREAD_MULTIPLE);
    next = (rank + 1) % size;
    before = (rank + size - 1) % size;
    out = memory_of(PARTS * BYTES);
    in = memory_of(PARTS * BYTES);
    OK(MPI_Psend_init(out, PARTS, BYTES, MPI_BYTE, next, 1, MPI_COMM_WORLD, MPI_INFO_NULL, &requests[0]));
    OK(MPI_Precv_init(in, HALVES, BYTES / 2, MPI_BYTE, before, 1, MPI_COMM_WORLD, MPI_INFO_NULL, &requests[1]));
    pthread_barrier_init(&line, NULL, THREADS);
    pthread_t threads[THREADS];
    for (int i = 0; i < THREADS; i++)
        CHECK(pthread_create(&threads[i], NULL, work, (void *)(intptr_t)i) == 0);
    for (int i = 0; i < THREADS; i++)
        CHECK(pthread_join(threads[i], NULL) == 0);
    OK(MPI_Request_free(&requests[0]));
    OK(MPI_Request_free(&requests[1]));

    /* A thread that waits, and sleeps by now, wakes up when another one makes the last partition ready. */
    OK(MPI_Psend_init(out, 2, 1, MPI_BYTE, 0, 2, MPI_COMM_SELF, MPI_INFO_NULL, &requests[0]));
    OK(MPI_Precv_init(in, 1, 2, MPI_BYTE, 0, 2, MPI_COMM_SELF, MPI_INFO_NULL, &requests[1]));
    OK(MPI_Startall(2, requests));
    CHECK(pthread_create(&threads[0], NULL, wait_both, NULL) == 0);
    OK(MPI_Pready(0, requests[0]));
    nap_ms(50);
    OK(MPI_Pready(1, requests[0]));
    CHECK(pthread_join(threads[0], NULL) == 0);
    OK(MPI_Request_free(&requests[0]));
    OK(MPI_Request_free(&requests[1]));
    return end();
}
