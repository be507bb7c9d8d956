/* Nonblocking duplication: many at a time and out of order, attributes and hints as they were at the call, and a barrier that goes on
 * while its rank waits for a message.
 * ranks: 1 2 4
 */
#include "world.h"

enum { COPIES = 40 };

static int copied;

static int copy_attribute(MPI_Comm comm, int key, void *extra, void *value, void *place, int *flag)
{
    (void)comm, (void)key, (void)extra;
    copied++;
    *(void **)place = value;
    *flag = 1;
    return MPI_SUCCESS;
}

static int refuse_attribute(MPI_Comm comm, int key, void *extra, void *value, void *place, int *flag)
{
    (void)comm, (void)key, (void)extra, (void)value, (void)place, (void)flag;
    return MPI_ERR_OTHER;
}

static void many(void)
{
    MPI_Comm copies[COPIES];
    MPI_Request requests[COPIES];
    int key, values[COPIES], found, sum, *value;
    OK(MPI_Comm_create_keyval(copy_attribute, MPI_COMM_NULL_DELETE_FN, &key, NULL));
    for (int i = 0; i < COPIES; i++) {
        values[i] = i;
        OK(MPI_Comm_set_attr(MPI_COMM_WORLD, key, &values[i]));
        OK(MPI_Comm_idup(MPI_COMM_WORLD, &copies[i], &requests[i]));
        if (i % 7 == 0)
            OK(MPI_Allreduce(&i, &sum, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD));
    }
    CHECK(copied == COPIES);
    OK(MPI_Comm_delete_attr(MPI_COMM_WORLD, key));
    for (int i = COPIES - 1; i >= 0; i--) {
        OK(MPI_Wait(&requests[i], MPI_STATUS_IGNORE));
        OK(MPI_Comm_get_attr(copies[i], key, &value, &found));
        CHECK(found && value == &values[i]);
        OK(MPI_Allreduce(&i, &sum, 1, MPI_INT, MPI_SUM, copies[i]));
        CHECK(sum == i * size);
    }
    for (int i = 0; i < COPIES; i++)
        OK(MPI_Comm_free(&copies[i]));
    OK(MPI_Comm_free_keyval(&key));
}

/* A copy callback that fails keeps the communicator from being made, here and nowhere else. */
static void refused(void)
{
    MPI_Comm parent, copy = MPI_COMM_NULL;
    MPI_Request request;
    int key;
    OK(MPI_Comm_dup(MPI_COMM_WORLD, &parent));
    OK(MPI_Comm_create_keyval(refuse_attribute, MPI_COMM_NULL_DELETE_FN, &key, NULL));
    if (rank == 0) {
        OK(MPI_Comm_set_attr(parent, key, NULL));
        FAILS(MPI_ERR_OTHER, MPI_Comm_idup(parent, &copy, &request));
        OK(MPI_Comm_delete_attr(parent, key));
    } else {
        OK(MPI_Comm_idup(parent, &copy, &request));
        OK(MPI_Wait(&request, MPI_STATUS_IGNORE));
        OK(MPI_Comm_free(&copy));
    }
    OK(MPI_Barrier(parent));
    OK(MPI_Comm_free(&parent));
    OK(MPI_Comm_free_keyval(&key));
}

/* Rank 0 sends only once the barrier has let it: the others take part in it inside MPI_Recv. */
static void progress_inside(void)
{
    MPI_Request request;
    OK(MPI_Ibarrier(MPI_COMM_WORLD, &request));
    if (rank == 0) {
        OK(MPI_Wait(&request, MPI_STATUS_IGNORE));
        for (int to = 1; to < size; to++)
            OK(MPI_Send(&to, 1, MPI_INT, to, 5, MPI_COMM_WORLD));
    } else {
        int got;
        MPI_Status status;
        if (rank % 2)
            OK(MPI_Probe(0, 5, MPI_COMM_WORLD, &status));
        OK(MPI_Recv(&got, 1, MPI_INT, 0, 5, MPI_COMM_WORLD, MPI_STATUS_IGNORE));
        CHECK(got == rank);
        OK(MPI_Wait(&request, MPI_STATUS_IGNORE));
    }
}

/* What is under way outlives the handles of communicator, datatype and operation. */
static void add(void *in, void *inout, int *count, MPI_Datatype *type)
{
    (void)type;
    for (int i = 0; i < *count; i++)
        ((int *)inout)[3 * i] += ((int *)in)[3 * i];
}

static void freed_early(void)
{
    MPI_Comm copy;
    MPI_Datatype column, element;
    MPI_Op op;
    MPI_Request later, again;
    int from[30], into[30], twice[30];
    for (int i = 0; i < 30; i++) {
        from[i] = i + rank;
        into[i] = twice[i] = -1;
    }
    OK(MPI_Comm_dup(MPI_COMM_WORLD, &copy));
    OK(MPI_Type_create_resized(MPI_INT, 0, 12, &element));
    OK(MPI_Type_contiguous(1, element, &column));
    OK(MPI_Type_commit(&column));
    OK(MPI_Op_create(add, 1, &op));
    OK(MPI_Allreduce_init(from, twice, 10, column, op, copy, MPI_INFO_NULL, &again));
    OK(MPI_Iallreduce(from, into, 10, column, op, copy, &later));
    OK(MPI_Start(&again));
    OK(MPI_Type_free(&element));
    OK(MPI_Type_free(&column));
    OK(MPI_Op_free(&op));
    OK(MPI_Comm_free(&copy));
    OK(MPI_Wait(&later, MPI_STATUS_IGNORE));
    for (int round = 0; round < 3; round++) {
        OK(MPI_Wait(&again, MPI_STATUS_IGNORE));
        for (int i = 0; i < 30; i++) {
            int expected = i % 3 ? -1 : i * size + size * (size - 1) / 2;
            CHECK(twice[i] == expected && into[i] == expected);
        }
        if (round < 2)
            OK(MPI_Start(&again));
    }
    OK(MPI_Request_free(&again));
}

int main(int argc, char **argv)
{
    begin(&argc, &argv);
    many();
    refused();
    for (int i = 0; i < 20; i++)
        progress_inside();
    for (int i = 0; i < 20; i++)
        freed_early();
    return end();
}
