/* MPI_THREAD_MULTIPLE: pairs of threads talk at once, on tags of one communicator and on communicators of their own.
 * ranks: 2
 * cflags: -pthread
 * timeout: 120
 */
#include "world.h"

#include <pthread.h>

enum { THREADS = 6, MESSAGES = 400, LIMIT = 60000 };

static MPI_Comm comms[THREADS];

static void *talk(void *argument)
{
    int mine = (int)(intptr_t)argument, peer = 1 - rank;
    MPI_Comm comm = mine % 2 ? comms[mine] : MPI_COMM_WORLD;
    unsigned char *out = memory_of(LIMIT), *in = memory_of(LIMIT);
    uint64_t state = (uint64_t)mine;
    for (int i = 0; i < MESSAGES; i++) {
        uint64_t what = draw(&state);
        int bytes = what % 4 ? (int)(what / 4 % 300) : (int)(what / 4 % LIMIT);
        MPI_Request requests[2];
        MPI_Status statuses[2];
        fill(out, (size_t)bytes, (unsigned)(i + mine + rank));
        switch (what % 3) {
        case 0:
            OK(MPI_Irecv(in, bytes, MPI_BYTE, peer, mine, comm, &requests[0]));
            OK(MPI_Isend(out, bytes, MPI_BYTE, peer, mine, comm, &requests[1]));
            OK(MPI_Waitall(2, requests, statuses));
            CHECK(statuses[0].MPI_TAG == mine);
            break;
        case 1:
            OK(MPI_Sendrecv(out, bytes, MPI_BYTE, peer, mine, in, bytes, MPI_BYTE, peer, mine, comm, MPI_STATUS_IGNORE));
            break;
        default:
            if (rank == 0) {
                OK(MPI_Ssend(out, bytes, MPI_BYTE, peer, mine, comm));
                OK(MPI_Recv(in, bytes, MPI_BYTE, peer, mine, comm, MPI_STATUS_IGNORE));
            } else {
                OK(MPI_Recv(in, bytes, MPI_BYTE, peer, mine, comm, MPI_STATUS_IGNORE));
                OK(MPI_Send(out, bytes, MPI_BYTE, peer, mine, comm));
            }
        }
        CHECK(holds(in, (size_t)bytes, (unsigned)(i + mine + peer)));
    }
    /* Collectives too, one communicator a thread. */
    for (int i = 0; i < 30; i++) {
        int one = i, sum;
        OK(MPI_Allreduce(&one, &sum, 1, MPI_INT, MPI_SUM, comms[mine]));
        CHECK(sum == 2 * i);
        OK(MPI_Barrier(comms[mine]));
    }
    free(out);
    free(in);
    return NULL;
}

int main(int argc, char **argv)
{
    begin_threaded(&argc, &argv, MPI_THREAD_MULTIPLE);
    pthread_t threads[THREADS];
    for (int i = 0; i < THREADS; i++)
        OK(MPI_Comm_dup(MPI_COMM_WORLD, &comms[i]));
    for (int i = 0; i < THREADS; i++)
        pthread_create(&threads[i], NULL, talk, (void *)(intptr_t)i);
    for (int i = 0; i < THREADS; i++)
        pthread_join(threads[i], NULL);
    for (int i = 0; i < THREADS; i++)
        OK(MPI_Comm_free(&comms[i]));
    return end();
}
