/* No pages are left when a rank is to answer one that it has never sent anything to: what the two do together fails at both of them, and each
 * goes on with the rank that it has known before.
 * ranks: 3
 * env: WHIMBREL_SINGLE_COPY=off
 * output: as expected: .*No space left
 */
#include "../programs-c/forbid.h"
#include "../programs-c/world.h"

enum { LONG = 1 << 20, ROUNDS = 100 };

static char text[MPI_MAX_ERROR_STRING];

/* `code` is an error; `text` says which. */
static void fails(int code)
{
    int length;
    CHECK(code != MPI_SUCCESS);
    OK(MPI_Error_string(code, text, &length));
}

static void exchange(int other)
{
    static unsigned char out[LONG], in[LONG];
    for (int i = 0; i < ROUNDS; i++) {
        int bytes = i % 10 ? i : LONG;
        fill(out, (size_t)bytes, (unsigned)i);
        OK(MPI_Sendrecv(out, bytes, MPI_BYTE, other, 5, in, bytes, MPI_BYTE, other, 5, MPI_COMM_WORLD, MPI_STATUS_IGNORE));
        CHECK(holds(in, (size_t)bytes, (unsigned)i));
    }
}

int main(int argc, char **argv)
{
    begin(&argc, &argv);
    char *buffer = memory_of(LONG);
    int word = 1;
    /* Rank 2 knows both others; those do not know each other. */
    if (rank != 2)
        exchange(2);
    else
        for (int other = 0; other < 2; other++)
            exchange(other);
    /* Rank 1 knows how to read what rank 0 sends. */
    if (rank == 0)
        OK(MPI_Send(&word, 1, MPI_INT, 1, 0, MPI_COMM_WORLD));
    if (rank == 1) {
        OK(MPI_Recv(&word, 1, MPI_INT, 0, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE));
        forbid(SYS_fallocate, SYS_fallocate, ENOSPC);
        OK(MPI_Send(&word, 1, MPI_INT, 2, 1, MPI_COMM_WORLD));
        fails(MPI_Recv(buffer, LONG, MPI_BYTE, 0, 2, MPI_COMM_WORLD, MPI_STATUS_IGNORE));
        CHECK(strstr(text, "No space left") != NULL);
        fails(MPI_Recv(buffer, LONG, MPI_BYTE, 0, 2, MPI_COMM_WORLD, MPI_STATUS_IGNORE));
        printf("as expected: %s\n", text);
        exchange(2);
        OK(MPI_Sendrecv(&word, 1, MPI_INT, 0, 0, &size, 1, MPI_INT, 0, 0, MPI_COMM_SELF, MPI_STATUS_IGNORE));
    } else if (rank == 2) {
        OK(MPI_Recv(&word, 1, MPI_INT, 1, 1, MPI_COMM_WORLD, MPI_STATUS_IGNORE));
        OK(MPI_Send(&word, 1, MPI_INT, 0, 1, MPI_COMM_WORLD));
        exchange(1);
        exchange(0);
    } else {
        MPI_Request sends[2];
        OK(MPI_Recv(&word, 1, MPI_INT, 2, 1, MPI_COMM_WORLD, MPI_STATUS_IGNORE));
        for (int i = 0; i < 2; i++)
            OK(MPI_Isend(buffer, LONG, MPI_BYTE, 1, 2, MPI_COMM_WORLD, &sends[i]));
        /* One waits, the other only asks. */
        fails(MPI_Wait(&sends[0], MPI_STATUS_IGNORE));
        CHECK(strstr(text, "rank 1") != NULL);
        int flag = 0, code = MPI_SUCCESS;
        while (!flag)
            code = MPI_Test(&sends[1], &flag, MPI_STATUS_IGNORE);
        fails(code);
        exchange(2);
    }
    return end();
}
