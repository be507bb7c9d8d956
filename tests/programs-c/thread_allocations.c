/* Short messages that are completed together or one by one take no memory of the allocator, also on a communicator with an engine of its own: an error that is
 * made and dropped for each of them shows as one allocation a message.
 * ranks: 1 2
 * cflags: -pthread
 */
#include "world.h"

#include <stdatomic.h>

enum { MESSAGES = 64, ROUNDS = 50, ALLOCATIONS_MAX = ROUNDS * MESSAGES / 8 };

static atomic_long allocations;

#ifdef __GLIBC__
void *__libc_malloc(size_t);
void *__libc_calloc(size_t, size_t);
void *__libc_realloc(void *, size_t);

void *malloc(size_t bytes)
{
    allocations++;
    return __libc_malloc(bytes);
}
void *calloc(size_t count, size_t bytes)
{
    allocations++;
    return __libc_calloc(count, bytes);
}
void *realloc(void *old, size_t bytes)
{
    allocations++;
    return __libc_realloc(old, bytes);
}
#endif

static long out[MESSAGES], in[MESSAGES];
static MPI_Request requests[2 * MESSAGES];

enum way { TOGETHER, ONE_BY_ONE, TESTED, ANY, WAYS };

static void exchange(MPI_Comm comm, int peer, enum way way)
{
    int n = 0, at, done;
    for (int i = 0; i < MESSAGES; i++)
        OK(MPI_Irecv(&in[i], 1, MPI_LONG, peer, i, comm, &requests[n++]));
    for (int i = 0; i < MESSAGES; i++)
        OK(MPI_Isend(&out[i], 1, MPI_LONG, peer, i, comm, &requests[n++]));
    switch (way) {
    case TOGETHER:
        OK(MPI_Waitall(n, requests, MPI_STATUSES_IGNORE));
        break;
    case ONE_BY_ONE:
        for (int i = 0; i < n; i++)
            OK(MPI_Wait(&requests[i], MPI_STATUS_IGNORE));
        break;
    case TESTED:
        for (int i = 0; i < n; i++)
            do
                OK(MPI_Test(&requests[i], &done, MPI_STATUS_IGNORE));
            while (!done);
        break;
    default:
        for (int i = 0; i < n; i++)
            OK(MPI_Waitany(n, requests, &at, MPI_STATUS_IGNORE));
    }
    for (int i = 0; i < MESSAGES; i++)
        CHECK(in[i] == out[i]);
}

int main(int argc, char **argv)
{
    begin_threaded(&argc, &argv, MPI_THREAD_MULTIPLE);
    int peer = size - 1 - rank;
    void *seen = malloc(1);
    CHECK(allocations > 0);
    free(seen);
    MPI_Comm comms[3] = {MPI_COMM_WORLD};
    OK(MPI_Comm_dup(MPI_COMM_WORLD, &comms[1]));
    OK(MPI_Comm_dup(MPI_COMM_WORLD, &comms[2]));
    for (int i = 0; i < MESSAGES; i++)
        out[i] = i;
    for (int number = 0; number < 3; number++)
        for (int way = 0; way < WAYS; way++) {
            for (int round = 0; round < 3; round++)
                exchange(comms[number], peer, way);
            long before = allocations;
            for (int round = 0; round < ROUNDS; round++)
                exchange(comms[number], peer, way);
            long made = allocations - before;
            if (made > ALLOCATIONS_MAX)
                fprintf(stderr, "communicator %d, way %d: %ld allocations for %d messages\n", number, way, made, ROUNDS * MESSAGES);
            CHECK(made <= ALLOCATIONS_MAX);
        }
    OK(MPI_Comm_free(&comms[1]));
    OK(MPI_Comm_free(&comms[2]));
    return end();
}
