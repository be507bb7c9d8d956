/* Freeing a communicator, and finalizing a session while the library has other users, wait for nobody's messages but their own: both ranks send, free, and
 * receive only then. Disconnecting waits for what is pending on its communicator, and for nothing else.
 * ranks: 2
 * timeout: 60
 */
#include "world.h"

enum { LARGE = 1 << 20 };

static unsigned char out[LARGE], in[LARGE], buffer[LARGE + MPI_BSEND_OVERHEAD];
static int other;

static void receive(MPI_Comm comm)
{
    memset(in, 0, LARGE);
    OK(MPI_Recv(in, LARGE, MPI_BYTE, other, 1, comm, MPI_STATUS_IGNORE));
    CHECK(holds(in, LARGE, (unsigned)other));
}

/* In the buffer of the process while another communicator goes. */
static void buffered(void)
{
    MPI_Comm comm;
    void *back;
    int bytes;
    OK(MPI_Comm_dup(MPI_COMM_WORLD, &comm));
    OK(MPI_Buffer_attach(buffer, sizeof buffer));
    OK(MPI_Bsend(out, LARGE, MPI_BYTE, other, 1, MPI_COMM_WORLD));
    OK(MPI_Comm_free(&comm));
    receive(MPI_COMM_WORLD);
    OK(MPI_Buffer_detach(&back, &bytes));
    CHECK(back == buffer);
}

/* On the communicator itself, which stays until they are received. */
static void own(void)
{
    MPI_Comm comm;
    MPI_Request requests[2];
    OK(MPI_Comm_dup(MPI_COMM_WORLD, &comm));
    memset(in, 0, LARGE);
    OK(MPI_Irecv(in, LARGE, MPI_BYTE, other, 1, comm, &requests[0]));
    OK(MPI_Isend(out, LARGE, MPI_BYTE, other, 1, comm, &requests[1]));
    OK(MPI_Comm_free(&comm));
    OK(MPI_Waitall(2, requests, MPI_STATUSES_IGNORE));
    CHECK(holds(in, LARGE, (unsigned)other));
}

/* A session goes while World's messages are under way. */
static void session(void)
{
    MPI_Session session;
    MPI_Request request;
    OK(MPI_Session_init(MPI_INFO_NULL, MPI_ERRORS_RETURN, &session));
    OK(MPI_Isend(out, LARGE, MPI_BYTE, other, 1, MPI_COMM_WORLD, &request));
    OK(MPI_Session_finalize(&session));
    receive(MPI_COMM_WORLD);
    OK(MPI_Wait(&request, MPI_STATUS_IGNORE));
}

/* Messages on another communicator are not waited for. */
static void disconnect_beside(void)
{
    MPI_Comm comm;
    MPI_Request requests[2];
    OK(MPI_Comm_dup(MPI_COMM_WORLD, &comm));
    OK(MPI_Isend(out, LARGE, MPI_BYTE, other, 1, MPI_COMM_WORLD, &requests[0]));
    OK(MPI_Ibarrier(MPI_COMM_WORLD, &requests[1]));
    OK(MPI_Comm_disconnect(&comm));
    CHECK(comm == MPI_COMM_NULL);
    receive(MPI_COMM_WORLD);
    OK(MPI_Waitall(2, requests, MPI_STATUSES_IGNORE));
}

/* Rank 0 disconnects with one operation pending, and says so; rank 1 has not heard of that before it ends the operation. */
enum pending { FREED_SEND, FREED_SYNCHRONOUS, RECEIVE, BARRIER, PENDING };

static void disconnect_pending(enum pending what)
{
    MPI_Comm comm;
    MPI_Request request;
    int flag = 0;
    OK(MPI_Comm_dup(MPI_COMM_WORLD, &comm));
    if (rank == 0) {
        switch (what) {
        case FREED_SEND:
            OK(MPI_Isend(out, LARGE, MPI_BYTE, other, 1, comm, &request));
            OK(MPI_Request_free(&request));
            break;
        case FREED_SYNCHRONOUS:
            OK(MPI_Issend(out, 1, MPI_BYTE, other, 1, comm, &request));
            OK(MPI_Request_free(&request));
            break;
        case RECEIVE:
            OK(MPI_Irecv(in, LARGE, MPI_BYTE, other, 1, comm, &request));
            break;
        default:
            OK(MPI_Ibarrier(comm, &request));
        }
        OK(MPI_Comm_disconnect(&comm));
        OK(MPI_Send(&flag, 1, MPI_INT, other, 2, MPI_COMM_WORLD));
        if (what == RECEIVE || what == BARRIER)
            OK(MPI_Wait(&request, MPI_STATUS_IGNORE));
        CHECK(what != RECEIVE || holds(in, LARGE, (unsigned)other));
        return;
    }
    for (int i = 0; i < 50; i++) {
        nap_ms(1);
        OK(MPI_Iprobe(other, 2, MPI_COMM_WORLD, &flag, MPI_STATUS_IGNORE));
        CHECK(!flag);
    }
    switch (what) {
    case FREED_SEND:
        receive(comm);
        break;
    case FREED_SYNCHRONOUS:
        OK(MPI_Recv(in, 1, MPI_BYTE, other, 1, comm, MPI_STATUS_IGNORE));
        break;
    case RECEIVE:
        OK(MPI_Send(out, LARGE, MPI_BYTE, other, 1, comm));
        break;
    default:
        OK(MPI_Ibarrier(comm, &request));
        OK(MPI_Wait(&request, MPI_STATUS_IGNORE));
    }
    OK(MPI_Recv(&flag, 1, MPI_INT, other, 2, MPI_COMM_WORLD, MPI_STATUS_IGNORE));
    OK(MPI_Comm_disconnect(&comm));
}

int main(int argc, char **argv)
{
    begin(&argc, &argv);
    other = 1 - rank;
    fill(out, LARGE, (unsigned)rank);
    for (int round = 0; round < 3; round++) {
        buffered();
        own();
        session();
        disconnect_beside();
        for (enum pending what = FREED_SEND; what < PENDING; what++)
            disconnect_pending(what);
    }
    return end();
}
