/* Buffered and ready sends, blocking and nonblocking; buffers of the program, of a communicator, and automatic ones.
 * ranks: 2
 */
#include "counts.h"

enum { ELEMENTS = 2000 };

static int values[ELEMENTS];

static void set(int seed)
{
    for (int i = 0; i < ELEMENTS; i++)
        values[i] = i * 3 + seed;
}

static void take(MPI_Comm comm, int seed)
{
    memset(values, 0, sizeof values);
    OK(MPI_Recv(values, ELEMENTS, MPI_INT, 0, 1, comm, MPI_STATUS_IGNORE));
    for (int i = 0; i < ELEMENTS; i++)
        CHECK(values[i] == i * 3 + seed);
}

/* Buffered sends complete though no receive is posted; the receiver waits until told that they have. */
static void buffered(void)
{
    enum { MESSAGES = 4 };
    int bytes = MESSAGES * ((int)sizeof values + MPI_BSEND_OVERHEAD);
    if (rank == 0) {
        char *space = memory_of((size_t)bytes);
        void *back;
        count_t back_bytes;
        MPI_Request request;
        OK(MPI_Buffer_attach(space, bytes));
        for (int i = 0; i < MESSAGES; i++) {
            set(i);
            if (i % 2) {
                OK(MPI_Ibsend(values, ELEMENTS, MPI_INT, 1, 1, MPI_COMM_WORLD, &request));
                OK(MPI_Wait(&request, MPI_STATUS_IGNORE));
            } else
                OK(MPI_Bsend(values, ELEMENTS, MPI_INT, 1, 1, MPI_COMM_WORLD));
        }
        set(77); /* the buffer holds copies */
        OK(MPI_Send(NULL, 0, MPI_INT, 1, 2, MPI_COMM_WORLD));
        OK(MPI_Buffer_detach(&back, &back_bytes));
        CHECK(back == space && back_bytes == bytes);
        /* Detaching has waited for the messages to leave, so the space may go. */
        memset(space, 0xff, (size_t)bytes);
        free(space);
    } else {
        OK(MPI_Recv(NULL, 0, MPI_INT, 0, 2, MPI_COMM_WORLD, MPI_STATUS_IGNORE));
        for (int i = 0; i < MESSAGES; i++)
            take(MPI_COMM_WORLD, i);
    }
}

/* A message that the buffer cannot hold, and too long to leave at once without one, is an error. */
static void too_small(void)
{
    enum { BYTES = 64 << 20 };
    static char space[1000], message[BYTES];
    void *back;
    count_t bytes;
    if (rank == 0) {
        OK(MPI_Buffer_attach(space, (int)sizeof space));
        FAILS(MPI_ERR_BUFFER, MPI_Bsend(message, BYTES, MPI_BYTE, 1, 3, MPI_COMM_WORLD));
        CHECK(MPI_Buffer_attach(values, (int)sizeof values) != MPI_SUCCESS);
        OK(MPI_Buffer_detach(&back, &bytes));
        CHECK(back == space && bytes == (int)sizeof space);
    }
}

/* Space comes back as messages leave. */
static void reused(void)
{
    count_t bytes = 2 * ((int)sizeof values + MPI_BSEND_OVERHEAD);
    if (rank == 0) {
        char *space = memory_of((size_t)bytes);
        void *back;
        OK(MPI_Buffer_attach(space, bytes));
        for (int i = 0; i < 20; i++) {
            set(i);
            OK(MPI_Bsend(values, ELEMENTS, MPI_INT, 1, 1, MPI_COMM_WORLD));
            OK(MPI_Recv(NULL, 0, MPI_INT, 1, 2, MPI_COMM_WORLD, MPI_STATUS_IGNORE));
        }
        OK(MPI_Buffer_detach(&back, &bytes));
        free(space);
    } else
        for (int i = 0; i < 20; i++) {
            take(MPI_COMM_WORLD, i);
            OK(MPI_Send(NULL, 0, MPI_INT, 0, 2, MPI_COMM_WORLD));
        }
}

static void automatic(void)
{
    MPI_Comm comm;
    OK(MPI_Comm_dup(MPI_COMM_WORLD, &comm));
    if (rank == 0) {
        void *back;
        count_t bytes;
        OK(MPI_Comm_attach_buffer(comm, MPI_BUFFER_AUTOMATIC, 0));
        for (int i = 0; i < 50; i++) {
            set(i);
            OK(MPI_Bsend(values, ELEMENTS, MPI_INT, 1, 1, comm));
        }
        OK(MPI_Send(NULL, 0, MPI_INT, 1, 2, comm));
        OK(MPI_Comm_flush_buffer(comm));
        OK(MPI_Comm_detach_buffer(comm, &back, &bytes));
        CHECK(back == MPI_BUFFER_AUTOMATIC);
    } else {
        OK(MPI_Recv(NULL, 0, MPI_INT, 0, 2, comm, MPI_STATUS_IGNORE));
        for (int i = 0; i < 50; i++)
            take(comm, i);
    }
    OK(MPI_Comm_free(&comm));
}

static void ready(void)
{
    MPI_Request requests[2];
    if (rank == 1) {
        static int more[ELEMENTS];
        OK(MPI_Irecv(values, ELEMENTS, MPI_INT, 0, 1, MPI_COMM_WORLD, &requests[0]));
        OK(MPI_Irecv(more, ELEMENTS, MPI_INT, 0, 1, MPI_COMM_WORLD, &requests[1]));
        OK(MPI_Send(NULL, 0, MPI_INT, 0, 2, MPI_COMM_WORLD));
        OK(MPI_Waitall(2, requests, MPI_STATUSES_IGNORE));
        CHECK(values[5] == 15 + 8 && more[ELEMENTS - 1] == (ELEMENTS - 1) * 3 + 8);
    } else {
        set(8);
        OK(MPI_Recv(NULL, 0, MPI_INT, 1, 2, MPI_COMM_WORLD, MPI_STATUS_IGNORE));
        OK(MPI_Rsend(values, ELEMENTS, MPI_INT, 1, 1, MPI_COMM_WORLD));
        OK(MPI_Irsend(values, ELEMENTS, MPI_INT, 1, 1, MPI_COMM_WORLD, &requests[0]));
        OK(MPI_Wait(&requests[0], MPI_STATUS_IGNORE));
    }
}

int main(int argc, char **argv)
{
    begin(&argc, &argv);
    buffered();
    too_small();
    reused();
    automatic();
    ready();
    return end();
}
