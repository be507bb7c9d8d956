/* ranks: 1 2 4
 *
 * One program that leans on what an ABI fixes: values of constants, layout of the status, handles passed by value and kept
 * in static storage, callbacks, and strings. cross.sh builds it with one library's header and runs it on another's library.
 */
#include <mpi.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define CHECK(condition)                                                                    \
    do {                                                                                    \
        if (!(condition)) {                                                                 \
            fprintf(stderr, "%s:%d: rank %d: not so: %s\n", __FILE__, __LINE__, rank, #condition); \
            MPI_Abort(MPI_COMM_WORLD, 9);                                                   \
        }                                                                                   \
    } while (0)

static int rank, size;

/* Handles are constants that static initialisers accept. */
static const MPI_Comm world = MPI_COMM_WORLD;
static const MPI_Datatype types[] = {MPI_CHAR, MPI_SHORT, MPI_INT, MPI_LONG, MPI_FLOAT, MPI_DOUBLE, MPI_INT64_T};
static const int sizes[] = {1, 2, 4, 8, 4, 8, 8};
static MPI_Request idle = MPI_REQUEST_NULL;

static void layout(void)
{
    CHECK(sizeof(MPI_Status) == 32);
    CHECK(offsetof(MPI_Status, MPI_SOURCE) == 0 && offsetof(MPI_Status, MPI_TAG) == 4);
    CHECK(offsetof(MPI_Status, MPI_ERROR) == 8);
    CHECK(sizeof(MPI_Comm) == sizeof(void *) && sizeof(MPI_Count) == 8 && sizeof(MPI_Aint) == sizeof(void *));
    int major, minor;
    CHECK(MPI_Abi_get_version(&major, &minor) == MPI_SUCCESS && major == 1);
}

static void datatypes(void)
{
    for (size_t i = 0; i < sizeof types / sizeof *types; i++) {
        int bytes;
        MPI_Type_size(types[i], &bytes);
        CHECK(bytes == sizes[i]);
    }
    char name[MPI_MAX_OBJECT_NAME];
    int length;
    MPI_Type_get_name(MPI_DOUBLE, name, &length);
    CHECK(strcmp(name, "MPI_DOUBLE") == 0 && length == 10);
    MPI_Comm_get_name(world, name, &length);
    CHECK(strcmp(name, "MPI_COMM_WORLD") == 0);
}

static void messages(void)
{
    int to = (rank + 1) % size, from = (rank + size - 1) % size, sent[3] = {rank, 7, -1}, received[4] = {0};
    MPI_Status status;
    memset(&status, 0x5a, sizeof status);
    MPI_Sendrecv(sent, 3, MPI_INT, to, 11, received, 4, MPI_INT, MPI_ANY_SOURCE, MPI_ANY_TAG, world, &status);
    CHECK(status.MPI_SOURCE == from && status.MPI_TAG == 11 && received[0] == from && received[2] == -1);
    int count, elements;
    MPI_Get_count(&status, MPI_INT, &count);
    MPI_Get_elements(&status, MPI_INT, &elements);
    CHECK(count == 3 && elements == 3);
    MPI_Get_count(&status, MPI_DOUBLE, &count);
    CHECK(count == MPI_UNDEFINED);

    MPI_Request requests[2];
    MPI_Status statuses[2];
    MPI_Irecv(received, 4, MPI_INT, from, 12, world, &requests[0]);
    MPI_Isend(sent, 2, MPI_INT, to, 12, world, &requests[1]);
    MPI_Waitall(2, requests, statuses);
    CHECK(requests[0] == MPI_REQUEST_NULL && requests[1] == MPI_REQUEST_NULL && statuses[0].MPI_SOURCE == from);

    MPI_Recv(received, 1, MPI_INT, MPI_PROC_NULL, 5, world, &status);
    CHECK(status.MPI_SOURCE == MPI_PROC_NULL && status.MPI_TAG == MPI_ANY_TAG);

    int flag = 0;
    MPI_Test(&idle, &flag, &status);
    CHECK(flag && status.MPI_SOURCE == MPI_ANY_SOURCE && status.MPI_TAG == MPI_ANY_TAG);
}

static void collectives(void)
{
    int one = 1, sum = 0;
    MPI_Allreduce(&one, &sum, 1, MPI_INT, MPI_SUM, world);
    CHECK(sum == size);
    struct {
        double value;
        int place;
    } mine = {-rank, rank}, least;
    MPI_Allreduce(&mine, &least, 1, MPI_DOUBLE_INT, MPI_MINLOC, world);
    CHECK(least.place == size - 1);
    int all[64], in_place[64];
    MPI_Allgather(&rank, 1, MPI_INT, all, 1, MPI_INT, world);
    in_place[rank] = rank;
    MPI_Allgather(MPI_IN_PLACE, 0, MPI_DATATYPE_NULL, in_place, 1, MPI_INT, world);
    for (int i = 0; i < size; i++)
        CHECK(all[i] == i && in_place[i] == i);
}

static void last_digit(void *in, void *inout, int *count, MPI_Datatype *type)
{
    CHECK(*type == MPI_INT);
    for (int i = 0; i < *count; i++)
        ((int *)inout)[i] = (((int *)in)[i] + ((int *)inout)[i]) % 10;
}

static int deletions;

static int copy_twice(MPI_Comm comm, int key, void *extra, void *in, void *out, int *flag)
{
    (void)comm, (void)key;
    *(void **)out = (char *)in + *(int *)extra;
    *flag = 1;
    return MPI_SUCCESS;
}

static int count_deletion(MPI_Comm comm, int key, void *value, void *extra)
{
    (void)comm, (void)key, (void)value, (void)extra;
    deletions++;
    return MPI_SUCCESS;
}

static int handled_code;

static void handler(MPI_Comm *comm, int *code, ...)
{
    CHECK(*comm != MPI_COMM_NULL);
    handled_code = *code;
}

static void callbacks(void)
{
    MPI_Op op;
    int digit = 7, result;
    MPI_Op_create(last_digit, 1, &op);
    MPI_Allreduce(&digit, &result, 1, MPI_INT, op, world);
    CHECK(result == 7 * size % 10);
    MPI_Op_free(&op);
    CHECK(op == MPI_OP_NULL);

    int key, flag, step = 3, *bound;
    static char base[8];
    char *value;
    MPI_Comm twin;
    MPI_Comm_create_keyval(copy_twice, count_deletion, &key, &step);
    MPI_Comm_set_attr(world, key, base);
    MPI_Comm_dup(world, &twin);
    MPI_Comm_get_attr(twin, key, &value, &flag);
    CHECK(flag && value == base + 3);
    MPI_Comm_free(&twin);
    CHECK(deletions == 1 && twin == MPI_COMM_NULL);
    MPI_Comm_delete_attr(world, key);
    CHECK(deletions == 2);
    MPI_Comm_free_keyval(&key);
    CHECK(key == MPI_KEYVAL_INVALID);
    MPI_Comm_get_attr(world, MPI_TAG_UB, &bound, &flag);
    CHECK(flag && *bound >= 32767);

    MPI_Errhandler mine;
    MPI_Comm_create_errhandler(handler, &mine);
    MPI_Comm_dup(world, &twin);
    MPI_Comm_set_errhandler(twin, mine);
    /* What a call returns after a user's handler has returned differs between libraries, so it is not looked at. */
    MPI_Send(NULL, 0, MPI_INT, size, 0, twin);
    int code = handled_code, class;
    MPI_Error_class(code, &class);
    CHECK(class == MPI_ERR_RANK);
    char text[MPI_MAX_ERROR_STRING];
    int length;
    MPI_Error_string(code, text, &length);
    CHECK(length > 0 && (size_t)length == strlen(text));
    MPI_Comm_set_errhandler(twin, MPI_ERRORS_RETURN);
    CHECK(MPI_Send(NULL, -1, MPI_INT, 0, 0, twin) != MPI_SUCCESS);
    MPI_Errhandler_free(&mine);
    MPI_Comm_free(&twin);
}

static void groups(void)
{
    MPI_Group group, first;
    MPI_Comm half;
    int result, zero = 0;
    MPI_Comm_group(world, &group);
    MPI_Group_incl(group, 1, &zero, &first);
    MPI_Group_compare(group, first, &result);
    CHECK(size == 1 ? result == MPI_IDENT : result == MPI_UNEQUAL);
    MPI_Comm_split(world, rank % 2 == 0 ? 0 : MPI_UNDEFINED, -rank, &half);
    CHECK((half == MPI_COMM_NULL) == (rank % 2 == 1));
    if (half != MPI_COMM_NULL) {
        MPI_Comm_compare(world, half, &result);
        CHECK(size == 1 ? result == MPI_CONGRUENT : result == MPI_UNEQUAL);
        MPI_Comm_free(&half);
    }
    MPI_Group_free(&first);
    MPI_Group_free(&group);
}

int main(int argc, char **argv)
{
    int provided;
    CHECK(MPI_Init_thread(&argc, &argv, MPI_THREAD_MULTIPLE, &provided) == MPI_SUCCESS);
    CHECK(provided >= MPI_THREAD_SINGLE && provided <= MPI_THREAD_MULTIPLE);
    MPI_Comm_rank(world, &rank);
    MPI_Comm_size(world, &size);
    layout();
    datatypes();
    messages();
    collectives();
    callbacks();
    groups();
    char library[MPI_MAX_LIBRARY_VERSION_STRING];
    int length;
    MPI_Get_library_version(library, &length);
    if (rank == 0)
        printf("fine on %d: %.*s\n", size, (int)strcspn(library, "\n"), library);
    MPI_Finalize();
    return 0;
}
