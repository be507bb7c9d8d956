/* Persistent requests of every mode, started again and again.
 * ranks: 1 2 4
 */
#include "counts.h"

enum { ROUNDS = 25, KINDS = 4, ELEMENTS = 5000 };

int main(int argc, char **argv)
{
    begin(&argc, &argv);
    static int out[KINDS][ELEMENTS], in[KINDS][ELEMENTS];
    static char space[2 * (sizeof out + MPI_BSEND_OVERHEAD)];
    int to = (rank + 1) % size, from = (rank + size - 1) % size, flag, index;
    count_t bytes;
    MPI_Request sends[KINDS], receives[KINDS];
    MPI_Status status;
    void *back;

    OK(MPI_Buffer_attach(space, (int)sizeof space));
    for (int i = 0; i < KINDS; i++)
        OK(MPI_Recv_init(in[i], ELEMENTS, MPI_INT, from, i, MPI_COMM_WORLD, &receives[i]));
    OK(MPI_Send_init(out[0], ELEMENTS, MPI_INT, to, 0, MPI_COMM_WORLD, &sends[0]));
    OK(MPI_Ssend_init(out[1], ELEMENTS, MPI_INT, to, 1, MPI_COMM_WORLD, &sends[1]));
    OK(MPI_Bsend_init(out[2], ELEMENTS, MPI_INT, to, 2, MPI_COMM_WORLD, &sends[2]));
    OK(MPI_Rsend_init(out[3], ELEMENTS, MPI_INT, to, 3, MPI_COMM_WORLD, &sends[3]));

    /* Inactive requests are complete with an empty status, and waits do not free them. */
    OK(MPI_Wait(&sends[0], &status));
    CHECK(sends[0] != MPI_REQUEST_NULL && status.MPI_SOURCE == MPI_ANY_SOURCE && status.MPI_TAG == MPI_ANY_TAG);
    OK(MPI_Waitany(KINDS, receives, &index, &status));
    CHECK(index == MPI_UNDEFINED);
    OK(MPI_Testall(KINDS, receives, &flag, MPI_STATUSES_IGNORE));
    CHECK(flag);

    for (int round = 0; round < ROUNDS; round++) {
        for (int i = 0; i < KINDS; i++)
            for (int j = 0; j < ELEMENTS; j++)
                out[i][j] = rank * 100000 + round * 1000 + i * 10 + j;
        if (round % 2)
            OK(MPI_Startall(KINDS, receives));
        else
            for (int i = 0; i < KINDS; i++)
                OK(MPI_Start(&receives[i]));
        OK(MPI_Barrier(MPI_COMM_WORLD)); /* for the ready send */
        OK(MPI_Startall(KINDS, sends));
        OK(MPI_Waitall(KINDS, receives, MPI_STATUSES_IGNORE));
        OK(MPI_Waitall(KINDS, sends, MPI_STATUSES_IGNORE));
        for (int i = 0; i < KINDS; i++) {
            CHECK(sends[i] != MPI_REQUEST_NULL && receives[i] != MPI_REQUEST_NULL);
            for (int j = 0; j < ELEMENTS; j += 37)
                CHECK(in[i][j] == from * 100000 + round * 1000 + i * 10 + j);
        }
    }
    /* A persistent send with an ordinary receive, and the other way round. */
    OK(MPI_Start(&sends[0]));
    OK(MPI_Recv(in[0], ELEMENTS, MPI_INT, from, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE));
    OK(MPI_Wait(&sends[0], MPI_STATUS_IGNORE));
    OK(MPI_Start(&receives[0]));
    OK(MPI_Send(out[0], ELEMENTS, MPI_INT, to, 0, MPI_COMM_WORLD));
    OK(MPI_Wait(&receives[0], &status));
    CHECK(status.MPI_SOURCE == from);

    OK(MPI_Buffer_detach(&back, &bytes));
    for (int i = 0; i < KINDS; i++) {
        OK(MPI_Request_free(&sends[i]));
        OK(MPI_Request_free(&receives[i]));
        CHECK(sends[i] == MPI_REQUEST_NULL);
    }
    /* To nobody. */
    OK(MPI_Send_init(out[0], 1, MPI_INT, MPI_PROC_NULL, 0, MPI_COMM_WORLD, &sends[0]));
    OK(MPI_Start(&sends[0]));
    OK(MPI_Wait(&sends[0], MPI_STATUS_IGNORE));
    OK(MPI_Request_free(&sends[0]));
    return end();
}
