/* No pages are left when two ranks begin to talk: an error that says how much was refused, and the system's reason. Never SIGBUS.
 * ranks: 2
 * status: nonzero
 * output: ^as expected: .*No space left
 */
#include "world.h"
#include "forbid.h"

int main(int argc, char **argv)
{
    begin(&argc, &argv);
    forbid(SYS_fallocate, SYS_fallocate, ENOSPC);
    char text[MPI_MAX_ERROR_STRING];
    int value = 7, length, code;
    MPI_Request request;
    code = MPI_Send(&value, 1, MPI_INT, 1 - rank, 0, MPI_COMM_WORLD);
    CHECK(code != MPI_SUCCESS);
    OK(MPI_Error_string(code, text, &length));
    CHECK(strstr(text, "bytes refused") != NULL && strstr(text, "No space left") != NULL);
    code = MPI_Issend(&value, 1, MPI_INT, 1 - rank, 0, MPI_COMM_WORLD, &request);
    if (code == MPI_SUCCESS)
        code = MPI_Wait(&request, MPI_STATUS_IGNORE);
    CHECK(code != MPI_SUCCESS);
    /* What needs no memory goes on. */
    OK(MPI_Sendrecv(&value, 1, MPI_INT, 0, 0, &length, 1, MPI_INT, 0, 0, MPI_COMM_SELF, MPI_STATUS_IGNORE));
    CHECK(length == 7);
    printf("as expected: %s\n", text);
    fflush(stdout);
    nap_ms(200);
    MPI_Abort(MPI_COMM_WORLD, 1);
    return 1;
}
