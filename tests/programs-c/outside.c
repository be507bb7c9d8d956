/* Calls before MPI_Init and after MPI_Finalize are errors that name the function; those that the standard allows succeed.
 * ranks: 1 2
 * launcher: -initial-errhandler mpi_errors_return
 */
#include "check.h"

/* The call fails, and its text names the function and says why. */
#define REFUSED(function, call)                                                                            \
    do {                                                                                                   \
        char text[MPI_MAX_ERROR_STRING];                                                                   \
        int length, code = (call);                                                                         \
        CHECK(code != MPI_SUCCESS);                                                                        \
        CHECK(MPI_Error_string(code, text, &length) == MPI_SUCCESS);                                       \
        if (!strstr(text, #function) || !strstr(text, why))                                                \
            fprintf(stderr, "%s gives: %s\n", #function, text);                                            \
        CHECK(strstr(text, #function) && strstr(text, why));                                               \
    } while (0)

static void refused(const char *why)
{
    int value = 1, other, dims[1] = {0};
    double from = 1, to = 2;
    char name[MPI_MAX_PROCESSOR_NAME], packed[64];
    MPI_Aint place = 0, extent;
    MPI_Comm comm;
    MPI_Datatype type;
    MPI_Group group;
    MPI_Op op;
    MPI_Request request;
    MPI_Status status;
    memset(&status, 0, sizeof status);
    REFUSED(MPI_Comm_rank, MPI_Comm_rank(MPI_COMM_WORLD, &value));
    REFUSED(MPI_Comm_size, MPI_Comm_size(MPI_COMM_SELF, &value));
    REFUSED(MPI_Send, MPI_Send(&value, 1, MPI_INT, 0, 0, MPI_COMM_SELF));
    REFUSED(MPI_Irecv, MPI_Irecv(&other, 1, MPI_INT, 0, 0, MPI_COMM_SELF, &request));
    REFUSED(MPI_Barrier, MPI_Barrier(MPI_COMM_WORLD));
    REFUSED(MPI_Ibarrier, MPI_Ibarrier(MPI_COMM_WORLD, &request));
    REFUSED(MPI_Comm_dup, MPI_Comm_dup(MPI_COMM_WORLD, &comm));
    REFUSED(MPI_Comm_set_errhandler, MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN));
    REFUSED(MPI_Type_contiguous, MPI_Type_contiguous(2, MPI_INT, &type));
    REFUSED(MPI_Type_get_extent, MPI_Type_get_extent(MPI_INT, &place, &extent));
    REFUSED(MPI_Group_union, MPI_Group_union(MPI_GROUP_EMPTY, MPI_GROUP_EMPTY, &group));
    REFUSED(MPI_Op_commutative, MPI_Op_commutative(MPI_SUM, &value));
    REFUSED(MPI_Op_free, (op = MPI_OP_NULL, MPI_Op_free(&op)));
    REFUSED(MPI_Reduce_local, MPI_Reduce_local(&from, &to, 1, MPI_DOUBLE, MPI_SUM));
    REFUSED(MPI_Pack_external, MPI_Pack_external("external32", &value, 1, MPI_INT, packed, sizeof packed, &place));
    REFUSED(MPI_Get_count, MPI_Get_count(&status, MPI_INT, &value));
    REFUSED(MPI_Dims_create, MPI_Dims_create(4, 1, dims));
    REFUSED(MPI_Get_processor_name, MPI_Get_processor_name(name, &value));
    REFUSED(MPI_Query_thread, MPI_Query_thread(&value));
    REFUSED(MPI_Buffer_detach, MPI_Buffer_detach(&request, &value));
    REFUSED(MPI_Comm_create_keyval, MPI_Comm_create_keyval(MPI_COMM_NULL_COPY_FN, MPI_COMM_NULL_DELETE_FN, &value, NULL));
}

static void allowed(int initialized, int finalized)
{
    int flag, version, length, number;
    char text[MPI_MAX_LIBRARY_VERSION_STRING];
    MPI_Info info;
    MPI_Errhandler handler = MPI_ERRORS_RETURN;
    void *memory;
    OK(MPI_Initialized(&flag));
    CHECK(flag == initialized);
    OK(MPI_Finalized(&flag));
    CHECK(flag == finalized);
    OK(MPI_Get_version(&version, &flag));
    OK(MPI_Get_library_version(text, &length));
    OK(MPI_Info_create(&info));
    OK(MPI_Info_set(info, "key", "value"));
    OK(MPI_Info_free(&info));
    OK(MPI_Error_class(MPI_ERR_RANK, &flag));
    OK(MPI_Errhandler_free(&handler));
    OK(MPI_T_init_thread(MPI_THREAD_SINGLE, &flag));
    OK(MPI_T_pvar_get_num(&number));
    OK(MPI_T_finalize());
    OK(MPI_Abi_get_version(&version, &flag));
    OK(MPI_Alloc_mem(100, MPI_INFO_NULL, &memory));
    OK(MPI_Free_mem(memory));
    CHECK(MPI_Comm_fromint(MPI_Comm_toint(MPI_COMM_WORLD)) == MPI_COMM_WORLD);
}

/* The library is used through a session, before, beside and after the World model. */
static void through_a_session(void)
{
    MPI_Session session;
    MPI_Datatype type;
    MPI_Group group;
    MPI_Comm comm;
    int value = 3, sum = 0;
    OK(MPI_Session_init(MPI_INFO_NULL, MPI_ERRORS_RETURN, &session));
    OK(MPI_Type_contiguous(2, MPI_INT, &type));
    OK(MPI_Type_free(&type));
    OK(MPI_Group_from_session_pset(session, "mpi://SELF", &group));
    OK(MPI_Comm_create_from_group(group, "outside", MPI_INFO_NULL, MPI_ERRORS_RETURN, &comm));
    OK(MPI_Allreduce(&value, &sum, 1, MPI_INT, MPI_SUM, comm));
    CHECK(sum == 3);
    OK(MPI_Comm_free(&comm));
    OK(MPI_Group_free(&group));
    OK(MPI_Session_finalize(&session));
}

int main(int argc, char **argv)
{
    refused("MPI is not initialized");
    allowed(0, 0);
    OK(MPI_Init(&argc, &argv));
    allowed(1, 0);
    through_a_session();
    OK(MPI_Barrier(MPI_COMM_WORLD));
    OK(MPI_Finalize());
    refused("MPI has been finalized");
    allowed(1, 1);
    CHECK(MPI_Finalize() != MPI_SUCCESS);
    CHECK(MPI_Init(NULL, NULL) != MPI_SUCCESS);
    return 0;
}
