/* Errors that name what was wrong: both lengths of a truncated message, operation and datatype of a reduction that is not defined.
 * And MPI_CHAR in reductions, which MPICH and Open MPI allow.
 * ranks: 2
 */
#include "world.h"

static void names(int code, const char *first, const char *second)
{
    char text[MPI_MAX_ERROR_STRING];
    int length;
    MPI_Error_string(code, text, &length);
    if (!strstr(text, first) || !strstr(text, second)) {
        fprintf(stderr, "the error does not name %s and %s: %s\n", first, second, text);
        exit(99);
    }
}

int main(int argc, char **argv)
{
    begin(&argc, &argv);
    MPI_Comm comm;
    OK(MPI_Comm_dup(MPI_COMM_WORLD, &comm));
    OK(MPI_Comm_set_errhandler(comm, MPI_ERRORS_RETURN));
    static char buffer[100000], result[8];
    const int lengths[] = {12, 100, 20000, 90000};
    for (int i = 0; i < 4; i++) {
        if (rank == 0) {
            OK(MPI_Send(buffer, lengths[i], MPI_BYTE, 1, i, comm));
        } else {
            char sent[32];
            snprintf(sent, sizeof sent, "%d bytes", lengths[i]);
            int code = MPI_Recv(buffer, 8, MPI_BYTE, 0, i, comm, MPI_STATUS_IGNORE);
            CHECK(code == MPI_ERR_TRUNCATE);
            names(code, sent, " 8 bytes");
        }
    }
    names(MPI_Allreduce(buffer, result, 1, MPI_BYTE, MPI_SUM, comm), "MPI_SUM", "MPI_BYTE");
    names(MPI_Allreduce(buffer, result, 1, MPI_DOUBLE, MPI_BXOR, comm), "MPI_BXOR", "MPI_DOUBLE");
    MPI_Datatype pair;
    OK(MPI_Type_contiguous(2, MPI_INT, &pair));
    OK(MPI_Type_commit(&pair));
    names(MPI_Allreduce(buffer, result, 1, pair, MPI_MAX, comm), "MPI_MAX", "derived datatype");
    OK(MPI_Type_set_name(pair, "couple"));
    names(MPI_Allreduce(buffer, result, 1, pair, MPI_MAX, comm), "MPI_MAX", "couple");
    OK(MPI_Type_free(&pair));
    char in[4] = {(char)(3 + rank), 'a', (char)rank, 5}, out[4];
    OK(MPI_Allreduce(in, out, 4, MPI_CHAR, MPI_SUM, comm));
    CHECK(out[0] == 7 && out[1] == (char)('a' + 'a') && out[2] == 1 && out[3] == 10);
    OK(MPI_Allreduce(in, out, 4, MPI_CHAR, MPI_MAX, comm));
    CHECK(out[0] == 4 && out[1] == 'a' && out[2] == 1);
    OK(MPI_Allreduce(in, out, 4, MPI_CHAR, MPI_LAND, comm));
    CHECK(out[0] == 1 && out[2] == 0);
    OK(MPI_Allreduce(in, out, 4, MPI_CHAR, MPI_BXOR, comm));
    CHECK(out[0] == 7 && out[1] == 0 && out[2] == 1);
    OK(MPI_Comm_free(&comm));
    return end();
}
