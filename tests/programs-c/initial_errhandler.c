/* The handler that mpiexec was asked for is that of MPI_COMM_WORLD and MPI_COMM_SELF, and of errors before MPI_Init.
 * ranks: 1 2
 * launcher: -initial-errhandler mpi_errors_return
 */
#include "check.h"

int main(int argc, char **argv) {
    MPI_Errhandler handler;
    MPI_Comm comm;
    MPI_Group group;
    int size, zero = 0, flag, length = MPI_MAX_INFO_VAL;
    char name[MPI_MAX_INFO_VAL];

    FAILS(MPI_ERR_INFO, MPI_Info_delete(MPI_INFO_NULL, "x"));
    OK(MPI_Info_get_string(MPI_INFO_ENV, "mpi_initial_errhandler", &length, name, &flag));
    CHECK(flag && strcmp(name, "mpi_errors_return") == 0);
    OK(MPI_Init(&argc, &argv));
    FAILS(MPI_ERR_RANK, MPI_Send(NULL, 0, MPI_INT, 99, 0, MPI_COMM_WORLD));
    FAILS(MPI_ERR_COMM, MPI_Comm_size(MPI_COMM_NULL, &size));
    FAILS(MPI_ERR_TYPE, MPI_Type_size(MPI_DATATYPE_NULL, &size));
    OK(MPI_Comm_dup(MPI_COMM_SELF, &comm));
    OK(MPI_Comm_get_errhandler(comm, &handler));
    CHECK(handler == MPI_ERRORS_RETURN);
    OK(MPI_Errhandler_free(&handler));
    OK(MPI_Comm_free(&comm));

    /* A null pointer for a result is an error, not a crash. */
    FAILS(MPI_ERR_ARG, MPI_Comm_size(MPI_COMM_WORLD, NULL));
    FAILS(MPI_ERR_ARG, MPI_Comm_group(MPI_COMM_WORLD, NULL));
    FAILS(MPI_ERR_ARG, MPI_Comm_dup(MPI_COMM_WORLD, NULL));
    FAILS(MPI_ERR_ARG, MPI_Comm_free(NULL));
    FAILS(MPI_ERR_ARG, MPI_Comm_get_name(MPI_COMM_WORLD, NULL, &size));
    FAILS(MPI_ERR_ARG, MPI_Group_size(MPI_GROUP_EMPTY, NULL));
    FAILS(MPI_ERR_ARG, MPI_Group_union(MPI_GROUP_EMPTY, MPI_GROUP_EMPTY, NULL));
    FAILS(MPI_ERR_ARG, MPI_Group_free(NULL));
    OK(MPI_Comm_group(MPI_COMM_SELF, &group));
    FAILS(MPI_ERR_ARG, MPI_Group_translate_ranks(group, 1, &zero, group, NULL));
    OK(MPI_Group_translate_ranks(group, 0, NULL, group, NULL));
    OK(MPI_Group_free(&group));
    OK(MPI_Finalize());
    return 0;
}
