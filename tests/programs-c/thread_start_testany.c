/* One thread starts persistent requests while another one looks at the same array with Testany, Waitany, Testsome and Waitsome: a request's state and
 * its engine are taken in one order.
 * ranks: 1 2
 * cflags: -pthread
 * timeout: 120
 */
#include "world.h"

#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>

enum { ROUNDS = 4000, BOTH = 2 };

static MPI_Request requests[BOTH + 1];
static MPI_Comm comm;
static atomic_int started, completed;

static void *complete(void *unused)
{
    (void)unused;
    while (atomic_load(&completed) < ROUNDS * BOTH) {
        int index, flag, count, indices[BOTH + 1], done = atomic_load(&completed);
        switch (done / BOTH % 4) {
        case 0:
            OK(MPI_Testany(BOTH + 1, requests, &index, &flag, MPI_STATUS_IGNORE));
            atomic_fetch_add(&completed, flag && index != MPI_UNDEFINED);
            break;
        case 1:
            OK(MPI_Testsome(BOTH + 1, requests, &count, indices, MPI_STATUSES_IGNORE));
            atomic_fetch_add(&completed, count == MPI_UNDEFINED ? 0 : count);
            break;
        case 2:
            /* Something is under way: this does not wait for the other thread. */
            if (atomic_load(&started) > done) {
                OK(MPI_Waitany(BOTH + 1, requests, &index, MPI_STATUS_IGNORE));
                atomic_fetch_add(&completed, 1);
            }
            break;
        default:
            if (atomic_load(&started) > done) {
                OK(MPI_Waitsome(BOTH + 1, requests, &count, indices, MPI_STATUSES_IGNORE));
                atomic_fetch_add(&completed, count);
            }
        }
        sched_yield();
    }
    return NULL;
}

static int never(void *state, MPI_Status *status)
{
    (void)state;
    (void)status;
    return MPI_SUCCESS;
}

static int freed(void *state)
{
    (void)state;
    return MPI_SUCCESS;
}

static int cancelled(void *state, int complete_already)
{
    (void)state;
    (void)complete_already;
    return MPI_SUCCESS;
}

int main(int argc, char **argv)
{
    pthread_t thread;
    int out = 0, in = -1;
    begin_threaded(&argc, &argv, MPI_THREAD_MULTIPLE);
    OK(MPI_Comm_dup(MPI_COMM_SELF, &comm));
    OK(MPI_Recv_init(&in, 1, MPI_INT, 0, 1, comm, &requests[0]));
    OK(MPI_Send_init(&out, 1, MPI_INT, 0, 1, comm, &requests[1]));
    /* One that stays active, so that a look finds none complete where there is none. */
    OK(MPI_Grequest_start(never, freed, cancelled, NULL, &requests[BOTH]));
    MPI_Request stays = requests[BOTH];
    pthread_create(&thread, NULL, complete, NULL);
    for (out = 0; out < ROUNDS; out++) {
        OK(MPI_Start(&requests[0]));
        atomic_fetch_add(&started, 1);
        OK(MPI_Start(&requests[1]));
        atomic_fetch_add(&started, 1);
        while (atomic_load(&completed) < (out + 1) * BOTH)
            sched_yield();
        CHECK(in == out);
    }
    pthread_join(thread, NULL);
    OK(MPI_Grequest_complete(stays));
    OK(MPI_Wait(&requests[BOTH], MPI_STATUS_IGNORE));
    OK(MPI_Request_free(&requests[0]));
    OK(MPI_Request_free(&requests[1]));
    OK(MPI_Comm_free(&comm));
    return end();
}
