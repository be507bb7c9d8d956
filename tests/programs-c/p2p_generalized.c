/* Generalized requests: completed by another thread, queried, cancelled, freed.
 * ranks: 1
 * cflags: -pthread
 */
#include "world.h"

#include <pthread.h>

struct state {
    int queried, freed, cancelled, completed_at_cancel;
};

static int query(void *extra, MPI_Status *status)
{
    struct state *state = extra;
    state->queried++;
    OK(MPI_Status_set_elements(status, MPI_INT, 3));
    OK(MPI_Status_set_cancelled(status, state->cancelled));
    status->MPI_SOURCE = 0;
    status->MPI_TAG = 42;
    return MPI_SUCCESS;
}

static int release(void *extra)
{
    ((struct state *)extra)->freed++;
    return MPI_SUCCESS;
}

static int cancel(void *extra, int complete)
{
    struct state *state = extra;
    state->cancelled = 1;
    state->completed_at_cancel = complete;
    return MPI_SUCCESS;
}

static void *complete_later(void *request)
{
    nap_ms(30);
    OK(MPI_Grequest_complete(*(MPI_Request *)request));
    return NULL;
}

int main(int argc, char **argv)
{
    begin_threaded(&argc, &argv, MPI_THREAD_MULTIPLE);
    struct state state = {0};
    MPI_Request request, copy;
    MPI_Status status;
    pthread_t thread;
    int flag, count;

    OK(MPI_Grequest_start(query, release, cancel, &state, &request));
    OK(MPI_Test(&request, &flag, &status));
    CHECK(!flag && state.queried == 0);
    copy = request;
    pthread_create(&thread, NULL, complete_later, &copy);
    OK(MPI_Wait(&request, &status));
    pthread_join(thread, NULL);
    OK(MPI_Get_count(&status, MPI_INT, &count));
    CHECK(request == MPI_REQUEST_NULL && state.queried == 1 && state.freed == 1);
    CHECK(count == 3 && status.MPI_TAG == 42);

    OK(MPI_Grequest_start(query, release, cancel, &state, &request));
    OK(MPI_Cancel(&request));
    CHECK(state.cancelled && !state.completed_at_cancel);
    OK(MPI_Grequest_complete(request));
    OK(MPI_Waitall(1, &request, &status));
    OK(MPI_Test_cancelled(&status, &flag));
    CHECK(flag && state.freed == 2);

    OK(MPI_Grequest_start(query, release, cancel, &state, &request));
    copy = request;
    OK(MPI_Request_free(&request));
    OK(MPI_Grequest_complete(copy));
    CHECK(state.freed == 3);
    return end();
}
