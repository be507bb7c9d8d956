/* MPI_THREAD_MULTIPLE: many threads of one process take from the same wildcard; every message is taken once, by one.
 * ranks: 2 3
 * cflags: -pthread
 * timeout: 120
 */
#include "world.h"

#include <pthread.h>
#include <stdatomic.h>

enum { THREADS = 5, MESSAGES = 3000, RANKS_MAX = 8, STOP = -1 };

static atomic_int seen[RANKS_MAX][MESSAGES], taken;

static void *take(void *argument)
{
    int means = (int)(intptr_t)argument % 3;
    for (;;) {
        int number;
        MPI_Status status;
        MPI_Message message;
        if (means == 0) {
            OK(MPI_Mprobe(MPI_ANY_SOURCE, 1, MPI_COMM_WORLD, &message, &status));
            OK(MPI_Mrecv(&number, 1, MPI_INT, &message, &status));
        } else if (means == 1) {
            MPI_Request request;
            int flag = 0;
            OK(MPI_Irecv(&number, 1, MPI_INT, MPI_ANY_SOURCE, 1, MPI_COMM_WORLD, &request));
            while (!flag) {
                OK(MPI_Test(&request, &flag, &status));
                if (!flag)
                    nap_ms(0);
            }
        } else
            OK(MPI_Recv(&number, 1, MPI_INT, MPI_ANY_SOURCE, 1, MPI_COMM_WORLD, &status));
        if (number == STOP)
            return NULL;
        CHECK(number >= 0 && number < MESSAGES);
        seen[status.MPI_SOURCE][number]++;
        taken++;
    }
}

/* Two threads of each other rank share the sending. */
static void *give(void *argument)
{
    for (int i = (int)(intptr_t)argument; i < MESSAGES; i += 2)
        OK(MPI_Send(&i, 1, MPI_INT, 0, 1, MPI_COMM_WORLD));
    return NULL;
}

int main(int argc, char **argv)
{
    begin_threaded(&argc, &argv, MPI_THREAD_MULTIPLE);
    CHECK(size <= RANKS_MAX);
    pthread_t threads[THREADS];
    int count = rank == 0 ? THREADS : 2, stop = STOP;
    for (int i = 0; i < count; i++)
        pthread_create(&threads[i], NULL, rank == 0 ? take : give, (void *)(intptr_t)i);
    if (rank != 0)
        for (int i = 0; i < count; i++)
            pthread_join(threads[i], NULL);
    /* Then rank 0 ends its takers, one message each. */
    OK(MPI_Barrier(MPI_COMM_WORLD));
    if (rank == 0) {
        for (int i = 0; i < THREADS; i++)
            OK(MPI_Send(&stop, 1, MPI_INT, 0, 1, MPI_COMM_WORLD));
        for (int i = 0; i < count; i++)
            pthread_join(threads[i], NULL);
        /* The stops may have overtaken messages of other ranks: what the takers left is taken here. */
        while (taken < MESSAGES * (size - 1)) {
            int number;
            MPI_Status status;
            OK(MPI_Recv(&number, 1, MPI_INT, MPI_ANY_SOURCE, 1, MPI_COMM_WORLD, &status));
            seen[status.MPI_SOURCE][number]++;
            taken++;
        }
        for (int r = 1; r < size; r++)
            for (int i = 0; i < MESSAGES; i++)
                CHECK(seen[r][i] == 1);
    }
    return end();
}
