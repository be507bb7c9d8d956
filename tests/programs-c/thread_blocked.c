/* One thread is blocked in a receive, a wait or a probe, while another thread of the same process works and then wakes it.
 * ranks: 1 2
 * cflags: -pthread
 */
#include "world.h"

#include <pthread.h>

enum { ROUNDS = 60 };

static void *blocked(void *argument)
{
    (void)argument;
    for (int i = 0; i < ROUNDS; i++) {
        int value, flag = i % 3;
        MPI_Status status;
        MPI_Request request;
        if (flag == 0)
            OK(MPI_Recv(&value, 1, MPI_INT, rank, 1, MPI_COMM_WORLD, &status));
        else if (flag == 1) {
            OK(MPI_Irecv(&value, 1, MPI_INT, rank, 1, MPI_COMM_WORLD, &request));
            OK(MPI_Wait(&request, &status));
        } else {
            OK(MPI_Probe(rank, 1, MPI_COMM_WORLD, &status));
            OK(MPI_Recv(&value, 1, MPI_INT, rank, 1, MPI_COMM_WORLD, &status));
        }
        CHECK(value == i);
        OK(MPI_Send(&value, 1, MPI_INT, rank, 2, MPI_COMM_WORLD));
    }
    return NULL;
}

int main(int argc, char **argv)
{
    begin_threaded(&argc, &argv, MPI_THREAD_MULTIPLE);
    pthread_t thread;
    pthread_create(&thread, NULL, blocked, NULL);
    for (int i = 0; i < ROUNDS; i++) {
        int out = i, in = -1, peer = size - 1 - rank;
        OK(MPI_Sendrecv(&out, 1, MPI_INT, peer, 3, &in, 1, MPI_INT, peer, 3, MPI_COMM_WORLD, MPI_STATUS_IGNORE));
        CHECK(in == i);
        if (i % 10 == 0)
            nap_ms(5); /* long enough for the other to fall asleep */
        OK(MPI_Send(&i, 1, MPI_INT, rank, 1, MPI_COMM_WORLD));
        OK(MPI_Recv(&in, 1, MPI_INT, rank, 2, MPI_COMM_WORLD, MPI_STATUS_IGNORE));
        CHECK(in == i);
    }
    pthread_join(thread, NULL);
    return end();
}
