/* Callbacks of the program that fail or call MPI themselves: of attributes, of generalized requests, of operations, and error handlers.
 * ranks: 1 2
 */
#include "world.h"

static int raised, raised_count, code_wanted, copies, freed;
static MPI_Comm raised_on;

static void note(MPI_Comm *comm, int *code, ...)
{
    raised_on = *comm;
    raised = *code;
    raised_count++;
    /* A handler may call MPI, and an error of its own raises it again. */
    if (raised_count == 1)
        CHECK(MPI_Comm_rank(MPI_COMM_NULL, &(int){0}) != MPI_SUCCESS);
}

static int copy(MPI_Comm comm, int key, void *extra, void *in, void *out, int *flag)
{
    int me;
    (void)key, (void)extra;
    OK(MPI_Comm_rank(comm, &me));
    CHECK(me == rank);
    copies++;
    *(void **)out = in;
    *flag = 1;
    return code_wanted;
}

static int delete(MPI_Comm comm, int key, void *value, void *extra)
{
    (void)comm, (void)key, (void)value, (void)extra;
    return code_wanted;
}

/* The error of a copy callback is that of MPI_Comm_dup (MPI-5.0 §7.7.2), and nothing of the new communicator stays. */
static void attributes(MPI_Comm comm, int code)
{
    int key, flag;
    void *value;
    MPI_Comm other = MPI_COMM_NULL;
    OK(MPI_Comm_create_keyval(copy, delete, &key, NULL));
    OK(MPI_Comm_set_attr(comm, key, &key));
    code_wanted = code;
    CHECK(MPI_Comm_dup(comm, &other) == code);
    CHECK(copies > 0);
    /* A delete callback that fails leaves the attribute where it is. */
    CHECK(MPI_Comm_delete_attr(comm, key) == code);
    OK(MPI_Comm_get_attr(comm, key, &value, &flag));
    CHECK(flag && value == &key);
    code_wanted = MPI_SUCCESS;
    OK(MPI_Comm_dup(comm, &other));
    OK(MPI_Comm_get_attr(other, key, &value, &flag));
    CHECK(flag && value == &key);
    OK(MPI_Comm_free(&other));
    OK(MPI_Comm_delete_attr(comm, key));
    OK(MPI_Comm_free_keyval(&key));
    /* All still talk to each other there. */
    int sum, one = 1;
    OK(MPI_Allreduce(&one, &sum, 1, MPI_INT, MPI_SUM, comm));
    CHECK(sum == size);
}

static int query(void *extra, MPI_Status *status)
{
    (void)extra;
    OK(MPI_Status_set_elements_x(status, MPI_INT, 5));
    OK(MPI_Status_set_cancelled(status, 0));
    status->MPI_SOURCE = status->MPI_TAG = 1;
    return code_wanted;
}

static int release(void *extra)
{
    (void)extra;
    freed++;
    return MPI_SUCCESS;
}

static int cancel(void *extra, int complete)
{
    (void)extra, (void)complete;
    return code_wanted;
}

/* The error of a query callback is that of the call that completes the request (MPI-5.0 §13.2). */
static void generalized(int code)
{
    MPI_Request request;
    MPI_Status status;
    int count;
    code_wanted = MPI_SUCCESS;
    OK(MPI_Grequest_start(query, release, cancel, NULL, &request));
    OK(MPI_Grequest_complete(request));
    OK(MPI_Wait(&request, &status));
    OK(MPI_Get_count(&status, MPI_INT, &count));
    CHECK(count == 5 && freed == 1 && request == MPI_REQUEST_NULL);
    OK(MPI_Grequest_start(query, release, cancel, NULL, &request));
    code_wanted = code;
    CHECK(MPI_Cancel(&request) == code);
    OK(MPI_Grequest_complete(request));
    CHECK(MPI_Wait(&request, &status) == code);
    CHECK(freed == 2 && request == MPI_REQUEST_NULL);
    code_wanted = MPI_SUCCESS;
}

static void add(void *in, void *inout, int *count, MPI_Datatype *type)
{
    int bytes;
    /* What is local may be asked here. */
    OK(MPI_Type_size(*type, &bytes));
    CHECK(bytes == sizeof(int));
    for (int i = 0; i < *count; i++)
        ((int *)inout)[i] += ((int *)in)[i];
}

static void operation(void)
{
    MPI_Op op;
    int commutes;
    static int in[5000], out[5000];
    OK(MPI_Op_create(add, 1, &op));
    OK(MPI_Op_commutative(op, &commutes));
    CHECK(commutes);
    for (int i = 0; i < 5000; i++)
        in[i] = rank + i;
    OK(MPI_Allreduce(in, out, 5000, MPI_INT, op, MPI_COMM_WORLD));
    for (int i = 0; i < 5000; i++)
        CHECK(out[i] == size * i + size * (size - 1) / 2);
    OK(MPI_Reduce_local(in, out, 5000, MPI_INT, op));
    OK(MPI_Reduce_local_c(in, out, 5000, MPI_INT, MPI_SUM));
    for (int i = 0; i < 5000; i++)
        CHECK(out[i] == size * i + size * (size - 1) / 2 + 2 * (rank + i));
    OK(MPI_Op_free(&op));
    CHECK(op == MPI_OP_NULL);
}

static void handlers(void)
{
    MPI_Comm comm;
    MPI_Errhandler handler;
    OK(MPI_Comm_dup(MPI_COMM_WORLD, &comm));
    OK(MPI_Comm_create_errhandler(note, &handler));
    OK(MPI_Comm_set_errhandler(comm, handler));
    OK(MPI_Errhandler_free(&handler));
    raised = raised_count = 0;
    FAILS(MPI_ERR_RANK, MPI_Send(&rank, 1, MPI_INT, size, 0, comm));
    CHECK(raised_count == 1 && raised_on == comm);
    FAILS(MPI_ERR_RANK, raised);
    FAILS(MPI_ERR_TAG, MPI_Send(&rank, 1, MPI_INT, 0, -5, comm));
    CHECK(raised_count == 2);
    OK(MPI_Comm_free(&comm));
}

int main(int argc, char **argv)
{
    MPI_Comm comm, parent = MPI_COMM_WORLD;
    int code;
    begin(&argc, &argv);
    OK(MPI_Comm_get_parent(&parent));
    CHECK(parent == MPI_COMM_NULL);
    OK(MPI_Add_error_class(&code));
    OK(MPI_Comm_dup(MPI_COMM_WORLD, &comm));
    attributes(comm, code);
    OK(MPI_Comm_disconnect(&comm));
    CHECK(comm == MPI_COMM_NULL);
    FAILS(MPI_ERR_COMM, MPI_Comm_disconnect(&comm));
    generalized(code);
    operation();
    handlers();
    return end();
}
