/* Every kind of request, completed in every way, where the thread that made the communicator, the one that starts the request and the one that
 * completes it are the same or others. The threads that have nothing to do stay outside MPI.
 * ranks: 1 2 3
 * cflags: -pthread
 * timeout: 240
 */
#include "world.h"

#include <pthread.h>
#include <signal.h>
#include <unistd.h>

/* Communicators: MPI_COMM_WORLD, four that the main thread made, so that they are in all engines, and two that another thread made. */
enum { THREADS = 3, COMMS = 7, MADE_BY_MAIN = 5, SHORT = 40, LONG = 300000, PARTITIONS = 3, REQUESTS_MAX = 2 };

enum kind {
    SEND,
    SEND_LONG,
    SSEND,
    BSEND,
    SEND_PERSISTENT,
    SSEND_PERSISTENT,
    PARTITIONED,
    BARRIER,
    ALLREDUCE,
    ALLREDUCE_LONG,
    ALLREDUCE_PERSISTENT,
    GENERALIZED,
    IDUP,
    KINDS
};
static const char *const kind_names[KINDS] = {"Isend", "long Isend", "Issend", "Ibsend", "Send_init", "Ssend_init", "Psend_init",
                                              "Ibarrier", "Iallreduce", "long Iallreduce", "Allreduce_init", "Grequest", "Comm_idup"};

enum way { WAIT, WAITANY, WAITSOME, WAITALL, TEST, TESTANY, TESTSOME, TESTALL, STATUS, STATUS_ANY, STATUS_SOME, STATUS_ALL, WAYS };
static const char *const way_names[WAYS] = {"Wait",     "Waitany", "Waitsome",           "Waitall",                "Test",                    "Testany",
                                            "Testsome", "Testall", "Request_get_status", "Request_get_status_any", "Request_get_status_some", "Request_get_status_all"};

static MPI_Comm comms[COMMS], idup;
static MPI_Request requests[REQUESTS_MAX];
static int count, persistent, comm_now, kind_now, way_now, starter_now, waiter_now;
static unsigned char out[LONG], in[LONG];
static char buffer[2 * (LONG + MPI_BSEND_OVERHEAD)];

/* --- one job after the other, each done by the thread that it names; 0 is the main thread */

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t changed = PTHREAD_COND_INITIALIZER;
static void (*job)(void);
static int job_of;

static void *serve(void *number)
{
    pthread_mutex_lock(&mutex);
    for (;;) {
        while (job == NULL || job_of != *(int *)number)
            pthread_cond_wait(&changed, &mutex);
        void (*mine)(void) = job;
        pthread_mutex_unlock(&mutex);
        mine();
        pthread_mutex_lock(&mutex);
        job = NULL;
        pthread_cond_broadcast(&changed);
    }
    return NULL;
}

static void give(int thread, void (*what)(void))
{
    if (thread == 0) {
        what();
        return;
    }
    pthread_mutex_lock(&mutex);
    job = what;
    job_of = thread;
    pthread_cond_broadcast(&changed);
    while (job != NULL)
        pthread_cond_wait(&changed, &mutex);
    pthread_mutex_unlock(&mutex);
}

static void late(int signal)
{
    static char text[300];
    int length = snprintf(text, sizeof text, "rank %d hangs: %s completed by %s, communicator %d, started by thread %d, completed by thread %d\n", rank,
                          kind_names[kind_now], way_names[way_now], comm_now, starter_now, waiter_now);
    (void)signal;
    if (write(2, text, (size_t)length) < 0)
        _exit(98);
    _exit(99);
}

/* --- starting */

static int query(void *state, MPI_Status *status)
{
    (void)state;
    OK(MPI_Status_set_elements(status, MPI_BYTE, 17));
    OK(MPI_Status_set_cancelled(status, 0));
    status->MPI_SOURCE = status->MPI_TAG = MPI_UNDEFINED;
    return MPI_SUCCESS;
}

static int freed(void *state)
{
    ++*(int *)state;
    return MPI_SUCCESS;
}

static int cancelled(void *state, int complete)
{
    (void)state;
    (void)complete;
    return MPI_SUCCESS;
}

static int times_freed;
static pthread_t completer;

static void *complete(void *request)
{
    nap_ms(rank % 2);
    OK(MPI_Grequest_complete(*(MPI_Request *)request));
    return NULL;
}

static int bytes_now(void)
{
    return kind_now == SEND_LONG || kind_now == ALLREDUCE_LONG ? LONG : SHORT;
}

static void start(void)
{
    static MPI_Request generalized;
    MPI_Comm comm = comms[comm_now];
    int bytes = bytes_now(), next = (rank + 1) % size, last = (rank + size - 1) % size;
    count = persistent = 0;
    switch (kind_now) {
    case SEND:
    case SEND_LONG:
    case SSEND:
    case BSEND:
        OK(MPI_Irecv(in, bytes, MPI_BYTE, last, 3, comm, &requests[count++]));
        OK((kind_now == SSEND ? MPI_Issend : kind_now == BSEND ? MPI_Ibsend : MPI_Isend)(out, bytes, MPI_BYTE, next, 3, comm, &requests[count++]));
        break;
    case SEND_PERSISTENT:
    case SSEND_PERSISTENT:
        persistent = 1;
        OK(MPI_Recv_init(in, bytes, MPI_BYTE, last, 3, comm, &requests[count++]));
        OK((kind_now == SEND_PERSISTENT ? MPI_Send_init : MPI_Ssend_init)(out, bytes, MPI_BYTE, next, 3, comm, &requests[count++]));
        OK(MPI_Startall(count, requests));
        break;
    case PARTITIONED:
        persistent = 1;
        OK(MPI_Psend_init(out, PARTITIONS, bytes / PARTITIONS, MPI_BYTE, next, 3, comm, MPI_INFO_NULL, &requests[count++]));
        OK(MPI_Precv_init(in, PARTITIONS, bytes / PARTITIONS, MPI_BYTE, last, 3, comm, MPI_INFO_NULL, &requests[count++]));
        OK(MPI_Startall(count, requests));
        OK(MPI_Pready_range(0, PARTITIONS - 1, requests[0]));
        break;
    case BARRIER:
        OK(MPI_Ibarrier(comm, &requests[count++]));
        break;
    case ALLREDUCE:
    case ALLREDUCE_LONG:
        OK(MPI_Iallreduce(out, in, bytes, MPI_UNSIGNED_CHAR, MPI_MAX, comm, &requests[count++]));
        break;
    case ALLREDUCE_PERSISTENT:
        persistent = 1;
        OK(MPI_Allreduce_init(out, in, bytes, MPI_UNSIGNED_CHAR, MPI_MAX, comm, MPI_INFO_NULL, &requests[count++]));
        OK(MPI_Start(&requests[0]));
        break;
    case GENERALIZED:
        OK(MPI_Grequest_start(query, freed, cancelled, &times_freed, &requests[count++]));
        generalized = requests[0];
        pthread_create(&completer, NULL, complete, &generalized);
        break;
    case IDUP:
        OK(MPI_Comm_idup(comm, &idup, &requests[count++]));
        break;
    }
}

/* --- completing */

static void wait_each(int n, const int *indices)
{
    for (int i = 0; i < n; i++)
        OK(MPI_Wait(&requests[indices[i]], MPI_STATUS_IGNORE));
}

static void finish(void)
{
    int done = 0, index = -1, flag = 0, some = 0, indices[REQUESTS_MAX];
    MPI_Status statuses[REQUESTS_MAX];
    switch (way_now) {
    case WAIT:
        for (int i = count - 1; i >= 0; i--)
            OK(MPI_Wait(&requests[i], MPI_STATUS_IGNORE));
        break;
    case WAITANY:
        for (; done < count; done++) {
            OK(MPI_Waitany(count, requests, &index, MPI_STATUS_IGNORE));
            CHECK(index != MPI_UNDEFINED);
        }
        break;
    case WAITSOME:
        for (; done < count; done += some) {
            OK(MPI_Waitsome(count, requests, &some, indices, statuses));
            CHECK(some > 0);
        }
        break;
    case WAITALL:
        OK(MPI_Waitall(count, requests, statuses));
        break;
    case TEST:
        for (int i = count - 1; i >= 0; i--)
            for (flag = 0; !flag;)
                OK(MPI_Test(&requests[i], &flag, MPI_STATUS_IGNORE));
        break;
    case TESTANY:
        for (; done < count; done += flag) {
            OK(MPI_Testany(count, requests, &index, &flag, MPI_STATUS_IGNORE));
            CHECK(!flag || index != MPI_UNDEFINED);
        }
        break;
    case TESTSOME:
        for (; done < count; done += some) {
            OK(MPI_Testsome(count, requests, &some, indices, statuses));
            CHECK(some != MPI_UNDEFINED);
        }
        break;
    case TESTALL:
        while (!flag)
            OK(MPI_Testall(count, requests, &flag, statuses));
        break;
    case STATUS:
        for (int i = count - 1; i >= 0; i--) {
            for (flag = 0; !flag;)
                OK(MPI_Request_get_status(requests[i], &flag, MPI_STATUS_IGNORE));
            wait_each(1, &i);
        }
        break;
    case STATUS_ANY:
        while (done < count) {
            OK(MPI_Request_get_status_any(count, requests, &index, &flag, MPI_STATUS_IGNORE));
            CHECK(!flag || index != MPI_UNDEFINED);
            if (flag)
                wait_each(1, &index);
            done += flag;
        }
        break;
    case STATUS_SOME:
        for (; done < count; done += some) {
            OK(MPI_Request_get_status_some(count, requests, &some, indices, statuses));
            CHECK(some != MPI_UNDEFINED);
            wait_each(some, indices);
        }
        break;
    case STATUS_ALL:
        while (!flag)
            OK(MPI_Request_get_status_all(count, requests, &flag, statuses));
        OK(MPI_Waitall(count, requests, statuses));
        break;
    }
    for (int i = 0; i < count && persistent; i++)
        OK(MPI_Request_free(&requests[i]));
    for (int i = 0; i < count; i++)
        CHECK(requests[i] == MPI_REQUEST_NULL);
    if (kind_now == IDUP)
        OK(MPI_Comm_free(&idup));
}

static void check(void)
{
    int bytes = bytes_now(), last = (rank + size - 1) % size, before = times_freed;
    switch (kind_now) {
    case BARRIER:
    case IDUP:
        break;
    case GENERALIZED:
        pthread_join(completer, NULL);
        CHECK(times_freed == 1 && before == 1);
        times_freed = 0;
        break;
    case ALLREDUCE:
    case ALLREDUCE_LONG:
    case ALLREDUCE_PERSISTENT:
        CHECK(all_bytes(in, (size_t)bytes, size));
        break;
    case PARTITIONED:
        CHECK(holds(in, (size_t)(bytes / PARTITIONS * PARTITIONS), (unsigned)last));
        break;
    default:
        CHECK(holds(in, (size_t)bytes, (unsigned)last));
    }
}

static void make_two(void)
{
    for (int i = MADE_BY_MAIN; i < COMMS; i++)
        OK(MPI_Comm_dup(MPI_COMM_WORLD, &comms[i]));
}

int main(int argc, char **argv)
{
    pthread_t threads[THREADS];
    static int numbers[THREADS] = {0, 1, 2};
    void *back;
    int back_bytes;
    begin_threaded(&argc, &argv, MPI_THREAD_MULTIPLE);
    signal(SIGALRM, late);
    OK(MPI_Buffer_attach(buffer, sizeof buffer));
    for (int i = 1; i < THREADS; i++) {
        pthread_create(&threads[i], NULL, serve, &numbers[i]);
        pthread_detach(threads[i]);
    }
    comms[0] = MPI_COMM_WORLD;
    for (int i = 1; i < MADE_BY_MAIN; i++)
        OK(MPI_Comm_dup(MPI_COMM_WORLD, &comms[i]));
    give(1, make_two);
    for (comm_now = 0; comm_now < COMMS; comm_now++)
        for (kind_now = 0; kind_now < KINDS; kind_now++)
            for (way_now = 0; way_now < WAYS; way_now++)
                for (starter_now = 0; starter_now < THREADS; starter_now++)
                    for (waiter_now = 0; waiter_now < THREADS; waiter_now++) {
                        /* Long ones take part in every third combination. */
                        if (bytes_now() == LONG && (starter_now + waiter_now + way_now) % 3)
                            continue;
                        int reduced = kind_now == ALLREDUCE || kind_now == ALLREDUCE_LONG || kind_now == ALLREDUCE_PERSISTENT;
                        if (reduced)
                            memset(out, rank + 1, (size_t)bytes_now());
                        else
                            fill(out, (size_t)bytes_now(), (unsigned)rank);
                        memset(in, 0, (size_t)bytes_now());
                        alarm(200);
                        give(starter_now, start);
                        give(waiter_now, finish);
                        check();
                    }
    OK(MPI_Buffer_detach(&back, &back_bytes));
    for (int i = 1; i < COMMS; i++)
        OK(MPI_Comm_free(&comms[i]));
    return end();
}
