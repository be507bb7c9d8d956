/* Error handlers: inheritance, user functions, MPI_ERRORS_RETURN, the details in the string.
 * ranks: 1 2
 */
#include "check.h"

static int calls, last_code;
static MPI_Comm last_comm;

static void handler(MPI_Comm *comm, int *code, ...) {
    calls++;
    last_comm = *comm;
    last_code = *code;
}

int main(int argc, char **argv) {
    MPI_Errhandler mine, found;
    MPI_Comm comm;
    char text[MPI_MAX_ERROR_STRING];
    int value = 0, length, size;

    OK(MPI_Comm_create_errhandler(handler, &mine)); /* before MPI_Init */
    OK(MPI_Init(&argc, &argv));
    OK(MPI_Comm_size(MPI_COMM_WORLD, &size));
    OK(MPI_Comm_get_errhandler(MPI_COMM_WORLD, &found));
    CHECK(found == MPI_ERRORS_ARE_FATAL);

    OK(MPI_Comm_set_errhandler(MPI_COMM_WORLD, mine));
    OK(MPI_Comm_dup(MPI_COMM_WORLD, &comm));
    OK(MPI_Comm_get_errhandler(comm, &found));
    CHECK(found == mine);
    OK(MPI_Errhandler_free(&found));
    OK(MPI_Errhandler_free(&mine)); /* the communicators still have it */

    FAILS(MPI_ERR_RANK, MPI_Send(&value, 1, MPI_INT, size + 5, 0, comm));
    CHECK(calls == 1 && last_comm == comm && last_code == MPI_ERR_RANK);
    OK(MPI_Error_string(last_code, text, &length));
    CHECK(strstr(text, "MPI_Send") && length == (int) strlen(text));
    FAILS(MPI_ERR_TAG, MPI_Send(&value, 1, MPI_INT, 0, -7, comm));
    CHECK(calls == 2 && last_code == MPI_ERR_TAG);
    OK(MPI_Comm_call_errhandler(comm, MPI_ERR_OTHER));
    CHECK(calls == 3 && last_code == MPI_ERR_OTHER);

    OK(MPI_Comm_set_errhandler(comm, MPI_ERRORS_RETURN));
    FAILS(MPI_ERR_COUNT, MPI_Send(&value, -1, MPI_INT, 0, 0, comm));
    FAILS(MPI_ERR_TYPE, MPI_Send(&value, 1, MPI_DATATYPE_NULL, 0, 0, comm));
    CHECK(calls == 3);
    OK(MPI_Comm_free(&comm));

    OK(MPI_Comm_set_errhandler(MPI_COMM_SELF, MPI_ERRORS_RETURN));
    OK(MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN));
    FAILS(MPI_ERR_COMM, MPI_Comm_size(MPI_COMM_NULL, &size));
    FAILS(MPI_ERR_ARG, MPI_Error_class(-5, &value));
    FAILS(MPI_ERR_INFO, MPI_Info_delete(MPI_INFO_NULL, "x"));
    FAILS(MPI_ERR_INFO, MPI_Info_delete(MPI_INFO_ENV, "x"));
    FAILS(MPI_ERR_ERRHANDLER, MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRHANDLER_NULL));
    OK(MPI_Finalize());
    return 0;
}
