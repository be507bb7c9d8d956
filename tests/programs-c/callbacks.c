/* Every callback of the program calls MPI itself: nothing of the library is held meanwhile, also where the calls fail there or the callback does.
 * ranks: 1 2
 * cflags: -pthread
 * timeout: 120
 */
#include "world.h"

#include <pthread.h>

static MPI_Comm comm;
static MPI_Request generalized;
static int calls, keyval, fails;

/* Communicates, makes and frees objects, and errs, from within a callback; another thread does so meanwhile. */
static void *use(void *unused)
{
    int value = 5, got = 0, flag;
    MPI_Request request;
    MPI_Comm other;
    MPI_Info info;
    (void)unused;
    OK(MPI_Isend(&value, 1, MPI_INT, 0, 9, MPI_COMM_SELF, &request));
    OK(MPI_Recv(&got, 1, MPI_INT, 0, 9, MPI_COMM_SELF, MPI_STATUS_IGNORE));
    OK(MPI_Wait(&request, MPI_STATUS_IGNORE));
    CHECK(got == 5);
    OK(MPI_Comm_dup(MPI_COMM_SELF, &other));
    OK(MPI_Iprobe(MPI_ANY_SOURCE, MPI_ANY_TAG, other, &flag, MPI_STATUS_IGNORE));
    OK(MPI_Comm_free(&other));
    OK(MPI_Info_create(&info));
    OK(MPI_Info_set(info, "a", "b"));
    OK(MPI_Info_free(&info));
    return NULL;
}

static void call_mpi(void)
{
    pthread_t thread;
    int value = 0;
    calls++;
    pthread_create(&thread, NULL, use, NULL);
    use(NULL);
    pthread_join(thread, NULL);
    /* An error of a call in a callback goes to its own handler. */
    FAILS(MPI_ERR_RANK, MPI_Send(&value, 1, MPI_INT, 77, 0, MPI_COMM_SELF));
}

static int query(void *state, MPI_Status *status)
{
    (void)state;
    call_mpi();
    OK(MPI_Status_set_elements(status, MPI_INT, 1));
    OK(MPI_Status_set_cancelled(status, 0));
    status->MPI_SOURCE = status->MPI_TAG = 3;
    return fails ? MPI_ERR_OTHER : MPI_SUCCESS;
}

static int freed(void *state)
{
    (void)state;
    call_mpi();
    return fails ? MPI_ERR_OTHER : MPI_SUCCESS;
}

/* What programs do here: the operation is cancelled, and so complete. */
static int cancelled(void *state, int complete)
{
    (void)state;
    call_mpi();
    if (!complete)
        OK(MPI_Grequest_complete(generalized));
    return fails ? MPI_ERR_OTHER : MPI_SUCCESS;
}

static int copy(MPI_Comm old, int key, void *state, void *value, void *place, int *flag)
{
    int there;
    void *got;
    (void)state;
    call_mpi();
    OK(MPI_Comm_get_attr(old, key, &got, &there));
    CHECK(there && got == value);
    *(void **)place = value;
    *flag = 1;
    return fails ? MPI_ERR_OTHER : MPI_SUCCESS;
}

static int delete(MPI_Comm old, int key, void *value, void *state)
{
    (void)old;
    (void)key;
    (void)value;
    (void)state;
    call_mpi();
    return MPI_SUCCESS;
}

static int type_copy(MPI_Datatype old, int key, void *state, void *value, void *place, int *flag)
{
    (void)old;
    (void)key;
    (void)state;
    call_mpi();
    *(void **)place = value;
    *flag = 1;
    return MPI_SUCCESS;
}

static int type_delete(MPI_Datatype old, int key, void *value, void *state)
{
    (void)old;
    (void)key;
    (void)value;
    (void)state;
    call_mpi();
    return MPI_SUCCESS;
}

static void handle(MPI_Comm *on, int *code, ...)
{
    char text[MPI_MAX_ERROR_STRING];
    int length;
    CHECK(*on == comm);
    OK(MPI_Error_string(*code, text, &length));
    CHECK(length > 0);
    call_mpi();
}

/* An operation may ask, not communicate (MPI-5.0 §6.9.5). */
static void add(void *in, void *inout, int *length, MPI_Datatype *datatype)
{
    int bytes;
    OK(MPI_Type_size(*datatype, &bytes));
    CHECK(bytes == sizeof(int) && MPI_Wtime() > 0);
    calls++;
    for (int i = 0; i < *length; i++)
        ((int *)inout)[i] += ((int *)in)[i];
}

static void requests(void)
{
    MPI_Status status;
    int index, flag, count, cancelled_flag;
    for (fails = 0; fails < 2; fails++)
        for (int way = 0; way < 4; way++) {
            int before = calls;
            OK(MPI_Grequest_start(query, freed, cancelled, NULL, &generalized));
            MPI_Request request = generalized;
            CHECK((MPI_Cancel(&request) == MPI_SUCCESS) == !fails);
            CHECK(calls == before + 1);
            int code = MPI_SUCCESS;
            switch (way) {
            case 0:
                code = MPI_Wait(&request, &status);
                break;
            case 1:
                code = MPI_Waitany(1, &request, &index, &status);
                break;
            case 2:
                code = MPI_Testsome(1, &request, &count, &index, &status);
                CHECK(count == 1);
                break;
            case 3:
                code = MPI_Testall(1, &request, &flag, &status);
                CHECK(flag);
            }
            CHECK((code == MPI_SUCCESS) == !fails && calls == before + 3 && request == MPI_REQUEST_NULL);
            OK(MPI_Test_cancelled(&status, &cancelled_flag));
        }
    /* Complete before it is cancelled, and freed before it is complete. */
    fails = 0;
    OK(MPI_Grequest_start(query, freed, cancelled, NULL, &generalized));
    OK(MPI_Grequest_complete(generalized));
    MPI_Request request = generalized;
    OK(MPI_Cancel(&request));
    OK(MPI_Request_get_status(request, &flag, &status));
    CHECK(flag);
    OK(MPI_Wait(&request, &status));
    OK(MPI_Grequest_start(query, freed, cancelled, NULL, &generalized));
    request = generalized;
    int before = calls;
    OK(MPI_Request_free(&request));
    CHECK(calls == before);
    OK(MPI_Grequest_complete(generalized));
    CHECK(calls == before + 1);
}

static void attributes(void)
{
    MPI_Comm other = MPI_COMM_NULL;
    MPI_Request request;
    MPI_Datatype type, type2;
    int type_key, before = calls;
    OK(MPI_Comm_create_keyval(copy, delete, &keyval, NULL));
    OK(MPI_Comm_set_attr(comm, keyval, &calls));
    OK(MPI_Comm_dup(comm, &other));
    OK(MPI_Comm_free(&other));
    OK(MPI_Comm_idup(comm, &other, &request));
    OK(MPI_Wait(&request, MPI_STATUS_IGNORE));
    OK(MPI_Comm_free(&other));
    CHECK(calls == before + 4);
    fails = 1; /* and the handler of the communicator is called after the callback */
    CHECK(MPI_Comm_dup(comm, &other) != MPI_SUCCESS);
    fails = 0;
    OK(MPI_Comm_delete_attr(comm, keyval));
    OK(MPI_Comm_free_keyval(&keyval));
    OK(MPI_Type_create_keyval(type_copy, type_delete, &type_key, NULL));
    OK(MPI_Type_contiguous(3, MPI_INT, &type));
    OK(MPI_Type_set_attr(type, type_key, &calls));
    before = calls;
    OK(MPI_Type_dup(type, &type2));
    OK(MPI_Type_free(&type));
    OK(MPI_Type_free(&type2));
    CHECK(calls == before + 3);
    OK(MPI_Type_free_keyval(&type_key));
}

static void handlers(void)
{
    int value = 0, small[4], before = calls;
    MPI_Request pair[2];
    CHECK(MPI_Send(&value, 1, MPI_INT, size, 0, comm) != MPI_SUCCESS);
    CHECK(calls == before + 1);
    /* Errors of completions are raised on the request's communicator. */
    OK(MPI_Irecv(&value, 1, MPI_INT, rank, 4, comm, &pair[0]));
    memset(small, 0, sizeof small);
    OK(MPI_Isend(small, 4, MPI_INT, rank, 4, comm, &pair[1]));
    CHECK(MPI_Waitall(2, pair, MPI_STATUSES_IGNORE) == MPI_ERR_IN_STATUS);
    CHECK(calls == before + 2);
}

static void operations(void)
{
    int one = 1, sum = 0, before = calls;
    MPI_Op op;
    MPI_Request request;
    OK(MPI_Op_create(add, 1, &op));
    OK(MPI_Allreduce(&one, &sum, 1, MPI_INT, op, comm));
    CHECK(sum == size);
    OK(MPI_Iallreduce(&one, &sum, 1, MPI_INT, op, comm, &request));
    OK(MPI_Wait(&request, MPI_STATUS_IGNORE));
    CHECK(sum == size);
    OK(MPI_Reduce_local(&one, &sum, 1, MPI_INT, op));
    CHECK(sum == size + 1 && calls > before);
    OK(MPI_Op_free(&op));
}

int main(int argc, char **argv)
{
    MPI_Errhandler handler;
    begin_threaded(&argc, &argv, MPI_THREAD_MULTIPLE);
    OK(MPI_Comm_dup(MPI_COMM_WORLD, &comm));
    OK(MPI_Comm_create_errhandler(handle, &handler));
    OK(MPI_Comm_set_errhandler(comm, handler));
    for (int round = 0; round < 10; round++) {
        requests();
        attributes();
        handlers();
        operations();
    }
    OK(MPI_Errhandler_free(&handler));
    OK(MPI_Comm_free(&comm));
    return end();
}
