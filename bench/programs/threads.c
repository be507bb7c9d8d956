/* Messages that threads exchange under MPI_THREAD_MULTIPLE: each thread with the thread of the same number of the other rank, or of its own rank where there is one rank.
 *
 * "own": each thread has a communicator of its own; "common": all threads use one, and tags tell them apart. */
#include "measure.h"

#include <pthread.h>

enum { THREADS_MAX = 4, WINDOW = 64 };

static MPI_Comm comms[THREADS_MAX];
static long windows_done[THREADS_MAX];
static double budget_s;
static int rank, peer;

static void window(MPI_Comm comm, int tag, int sends, int receives)
{
    MPI_Request requests[2 * WINDOW];
    static _Thread_local long out[WINDOW], in[WINDOW];
    int n = 0;
    if (receives)
        for (int i = 0; i < WINDOW; i++)
            MPI_Irecv(&in[i], 1, MPI_LONG, peer, tag, comm, &requests[n++]);
    if (sends)
        for (int i = 0; i < WINDOW; i++) {
            out[i] = i;
            MPI_Isend(&out[i], 1, MPI_LONG, peer, tag, comm, &requests[n++]);
        }
    MPI_Waitall(n, requests, MPI_STATUSES_IGNORE);
    for (int i = 0; receives && i < WINDOW; i++)
        if (in[i] != i)
            fail("a message arrived with wrong contents");
}

/* The first rank decides when it is over and says so with each window. */
static void *work(void *argument)
{
    int number = *(int *)argument, going = 1;
    MPI_Comm comm = comms[number];
    double start = MPI_Wtime();
    for (windows_done[number] = 0; going; windows_done[number]++) {
        if (peer == rank) {
            window(comm, number, 1, 1);
            going = MPI_Wtime() - start < budget_s;
        } else if (rank == 0) {
            window(comm, number, 1, 0);
            going = MPI_Wtime() - start < budget_s;
            MPI_Send(&going, 1, MPI_INT, peer, 100 + number, comm);
            MPI_Recv(NULL, 0, MPI_BYTE, peer, 100 + number, comm, MPI_STATUS_IGNORE);
        } else {
            window(comm, number, 0, 1);
            MPI_Recv(&going, 1, MPI_INT, peer, 100 + number, comm, MPI_STATUS_IGNORE);
            MPI_Send(NULL, 0, MPI_BYTE, peer, 100 + number, comm);
        }
    }
    return NULL;
}

static double rate(int threads)
{
    pthread_t others[THREADS_MAX];
    int numbers[THREADS_MAX];
    MPI_Barrier(MPI_COMM_WORLD);
    double start = MPI_Wtime();
    for (int i = 0; i < threads; i++) {
        numbers[i] = i;
        pthread_create(&others[i], NULL, work, &numbers[i]);
    }
    for (int i = 0; i < threads; i++)
        pthread_join(others[i], NULL);
    double elapsed = MPI_Wtime() - start;
    long windows = 0;
    for (int i = 0; i < threads; i++)
        windows += windows_done[i];
    return (double)windows * WINDOW / elapsed;
}

int main(int argc, char **argv)
{
    int provided;
    MPI_Init_thread(&argc, &argv, MPI_THREAD_MULTIPLE, &provided);
    budget_s = budget_argument(argc, argv);
    if (provided < MPI_THREAD_MULTIPLE)
        fail("the library does not provide MPI_THREAD_MULTIPLE");
    if (world_size() > 2)
        fail("this program runs on 1 or 2 ranks");
    rank = world_rank();
    peer = world_size() - 1 - rank;
    for (int own = 1; own >= 0; own--) {
        MPI_Comm common;
        MPI_Comm_dup(MPI_COMM_WORLD, &common);
        for (int i = 0; i < THREADS_MAX; i++)
            if (own)
                MPI_Comm_dup(MPI_COMM_WORLD, &comms[i]);
            else
                comms[i] = common;
        for (int threads = 1; threads <= THREADS_MAX; threads *= 2) {
            rate(threads);
            double per_s = rate(threads);
            if (rank == 0)
                printf("{\"bench\": \"threads\", \"ranks\": %d, \"threads\": %d, \"communicators\": \"%s\", \"bytes\": 8, "
                       "\"messages_per_s\": %.0f}\n", world_size(), threads, own ? "own" : "common", per_s);
        }
        for (int i = 0; own && i < THREADS_MAX; i++)
            MPI_Comm_free(&comms[i]);
        MPI_Comm_free(&common);
    }
    MPI_Finalize();
    return 0;
}
