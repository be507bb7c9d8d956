/* Flushing the buffers of the process, of a communicator and of a session, at once and later: afterwards all their room is there again.
 * ranks: 2 3
 */
#include "counts.h"

enum { BYTES = 1 << 20, ROUNDS = 3 };
enum { PROCESS, COMMUNICATOR, SESSION, OWNERS };

static unsigned char message[BYTES], space[BYTES + MPI_BSEND_OVERHEAD];
static MPI_Session session;

static int attach(int owner, MPI_Comm comm, void *room, count_t bytes)
{
    return owner == PROCESS ? MPI_Buffer_attach(room, bytes) : owner == COMMUNICATOR ? MPI_Comm_attach_buffer(comm, room, bytes)
                                                             : MPI_Session_attach_buffer(session, room, bytes);
}

static int detach(int owner, MPI_Comm comm, void *room, count_t *bytes)
{
    return owner == PROCESS ? MPI_Buffer_detach(room, bytes) : owner == COMMUNICATOR ? MPI_Comm_detach_buffer(comm, room, bytes)
                                                             : MPI_Session_detach_buffer(session, room, bytes);
}

static int flush(int owner, MPI_Comm comm)
{
    return owner == PROCESS ? MPI_Buffer_flush() : owner == COMMUNICATOR ? MPI_Comm_flush_buffer(comm) : MPI_Session_flush_buffer(session);
}

static int flush_later(int owner, MPI_Comm comm, MPI_Request *request)
{
    return owner == PROCESS ? MPI_Buffer_iflush(request) : owner == COMMUNICATOR ? MPI_Comm_iflush_buffer(comm, request)
                                                         : MPI_Session_iflush_buffer(session, request);
}

/* Rank 0 sends messages that each fill the buffer. What is asked for while nobody receives comes to an end when somebody does. */
static void sends(int owner, MPI_Comm comm, int later)
{
    count_t back_bytes;
    void *back;
    OK(attach(owner, comm, space, sizeof space));
    for (int i = 0; i < ROUNDS; i++) {
        MPI_Request request = MPI_REQUEST_NULL;
        int flag = 0;
        fill(message, BYTES, (unsigned)(10 * owner + i));
        OK(MPI_Bsend(message, BYTES, MPI_BYTE, size - 1, i, comm));
        fill(message, BYTES, 99);
        if (later)
            OK(flush_later(owner, comm, &request));
        OK(MPI_Send(NULL, 0, MPI_BYTE, size - 1, 100, comm));
        if (later && i == 0)
            OK(MPI_Wait(&request, MPI_STATUS_IGNORE));
        else if (later)
            while (!flag)
                OK(MPI_Test(&request, &flag, MPI_STATUS_IGNORE));
        else
            OK(flush(owner, comm));
        CHECK(request == MPI_REQUEST_NULL);
    }
    /* Nothing is under way: at once. */
    OK(flush(owner, comm));
    MPI_Request request;
    OK(flush_later(owner, comm, &request));
    OK(MPI_Wait(&request, MPI_STATUS_IGNORE));
    OK(detach(owner, comm, &back, &back_bytes));
    CHECK(back == space && back_bytes == (count_t)sizeof space);
}

static void receives(int owner, MPI_Comm comm)
{
    for (int i = 0; i < ROUNDS; i++) {
        OK(MPI_Recv(NULL, 0, MPI_BYTE, 0, 100, comm, MPI_STATUS_IGNORE));
        OK(MPI_Recv(message, BYTES, MPI_BYTE, 0, i, comm, MPI_STATUS_IGNORE));
        CHECK(holds(message, BYTES, (unsigned)(10 * owner + i)));
    }
}

int main(int argc, char **argv)
{
    begin(&argc, &argv);
    MPI_Group group;
    MPI_Comm own[OWNERS] = {MPI_COMM_WORLD, MPI_COMM_NULL, MPI_COMM_NULL};
    OK(MPI_Session_init(MPI_INFO_NULL, MPI_ERRORS_RETURN, &session));
    OK(MPI_Group_from_session_pset(session, "mpi://WORLD", &group));
    OK(MPI_Comm_create_from_group(group, "buffers", MPI_INFO_NULL, MPI_ERRORS_RETURN, &own[SESSION]));
    OK(MPI_Group_free(&group));
    OK(MPI_Comm_dup(MPI_COMM_WORLD, &own[COMMUNICATOR]));
    for (int owner = 0; owner < OWNERS; owner++)
        for (int later = 0; later < 2; later++) {
            if (rank == 0)
                sends(owner, own[owner], later);
            else if (rank == size - 1)
                receives(owner, own[owner]);
            OK(MPI_Barrier(own[owner]));
        }
    /* Nobody has a buffer now. */
    count_t bytes;
    void *back;
    for (int owner = 0; owner < OWNERS; owner++)
        CHECK(detach(owner, own[owner], &back, &bytes) != MPI_SUCCESS || bytes == 0);
    OK(MPI_Comm_free(&own[COMMUNICATOR]));
    OK(MPI_Comm_free(&own[SESSION]));
    OK(MPI_Session_finalize(&session));
    return end();
}
