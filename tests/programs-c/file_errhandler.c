/* MPI_FILE_NULL has the error handler with which files begin.
 * ranks: 1
 */
#include "world.h"

static int calls, last;

static void note(MPI_File *file, int *code, ...)
{
    CHECK(*file == MPI_FILE_NULL);
    last = *code;
    calls++;
}

static void other(MPI_Comm *comm, int *code, ...)
{
    (void)comm;
    (void)code;
}

int main(int argc, char **argv)
{
    MPI_Errhandler handler, got, wrong;
    begin(&argc, &argv);
    OK(MPI_File_get_errhandler(MPI_FILE_NULL, &got));
    CHECK(got == MPI_ERRORS_RETURN);
    OK(MPI_File_call_errhandler(MPI_FILE_NULL, MPI_ERR_IO));
    OK(MPI_File_create_errhandler(note, &handler));
    OK(MPI_File_set_errhandler(MPI_FILE_NULL, handler));
    OK(MPI_File_get_errhandler(MPI_FILE_NULL, &got));
    CHECK(got == handler);
    OK(MPI_Errhandler_free(&handler));
    OK(MPI_File_call_errhandler(MPI_FILE_NULL, MPI_ERR_IO));
    CHECK(calls == 1 && last == MPI_ERR_IO);
    OK(MPI_Comm_create_errhandler(other, &wrong));
    FAILS(MPI_ERR_ERRHANDLER, MPI_File_set_errhandler(MPI_FILE_NULL, wrong));
    CHECK(calls == 2 && last == MPI_ERR_ERRHANDLER);
    OK(MPI_Errhandler_free(&wrong));
    OK(MPI_File_set_errhandler(MPI_FILE_NULL, MPI_ERRORS_RETURN));
    OK(MPI_Errhandler_free(&got));
    FAILS(MPI_ERR_FILE, MPI_File_get_errhandler((MPI_File)(intptr_t)0x12345, &got));
    CHECK(calls == 2);
    return end();
}
