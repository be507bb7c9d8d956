/* Probe, Iprobe, and their matched kin, over short and long messages.
 * ranks: 2 3
 */
#include "counts.h"

static void probe_then_receive(int bytes, int matched)
{
    unsigned char *buffer = memory_of((size_t)bytes);
    if (rank == 0) {
        fill(buffer, (size_t)bytes, 3);
        OK(MPI_Send(buffer, bytes, MPI_BYTE, 1, 5, MPI_COMM_WORLD));
    } else if (rank == 1) {
        MPI_Status status, probed;
        MPI_Message message = MPI_MESSAGE_NULL;
        count_t count;
        if (matched) {
            OK(MPI_Mprobe(MPI_ANY_SOURCE, MPI_ANY_TAG, MPI_COMM_WORLD, &message, &probed));
            CHECK(message != MPI_MESSAGE_NULL);
        } else
            OK(MPI_Probe(MPI_ANY_SOURCE, MPI_ANY_TAG, MPI_COMM_WORLD, &probed));
        OK(MPI_Get_count(&probed, MPI_BYTE, &count));
        CHECK(count == bytes && probed.MPI_SOURCE == 0 && probed.MPI_TAG == 5);
        if (matched && bytes % 2) {
            MPI_Request request;
            OK(MPI_Imrecv(buffer, bytes, MPI_BYTE, &message, &request));
            CHECK(message == MPI_MESSAGE_NULL);
            OK(MPI_Wait(&request, &status));
        } else if (matched) {
            OK(MPI_Mrecv(buffer, bytes, MPI_BYTE, &message, &status));
            CHECK(message == MPI_MESSAGE_NULL);
        } else
            OK(MPI_Recv(buffer, bytes, MPI_BYTE, probed.MPI_SOURCE, probed.MPI_TAG, MPI_COMM_WORLD, &status));
        OK(MPI_Get_count(&status, MPI_BYTE, &count));
        CHECK(count == bytes && status.MPI_SOURCE == 0 && status.MPI_TAG == 5 && holds(buffer, (size_t)bytes, 3));
    }
    free(buffer);
}

/* A probe leaves the message; a matched probe takes it out of sight. */
static void sight(void)
{
    int flag, first = 11, second = 22, value;
    MPI_Status status;
    MPI_Message message;
    if (rank == 0) {
        MPI_Request requests[2];
        OK(MPI_Isend(&first, 1, MPI_INT, 1, 6, MPI_COMM_WORLD, &requests[0]));
        OK(MPI_Isend(&second, 1, MPI_INT, 1, 6, MPI_COMM_WORLD, &requests[1]));
        OK(MPI_Waitall(2, requests, MPI_STATUSES_IGNORE));
    }
    if (rank == 1) {
        OK(MPI_Iprobe(0, 999, MPI_COMM_WORLD, &flag, &status));
        CHECK(!flag);
        for (int i = 0; i < 3; i++)
            OK(MPI_Probe(0, 6, MPI_COMM_WORLD, MPI_STATUS_IGNORE));
        do
            OK(MPI_Improbe(0, 6, MPI_COMM_WORLD, &flag, &message, &status));
        while (!flag);
        OK(MPI_Recv(&value, 1, MPI_INT, 0, 6, MPI_COMM_WORLD, MPI_STATUS_IGNORE));
        CHECK(value == 22);
        OK(MPI_Iprobe(0, 6, MPI_COMM_WORLD, &flag, &status));
        CHECK(!flag);
        OK(MPI_Mrecv(&value, 1, MPI_INT, &message, &status));
        CHECK(value == 11 && status.MPI_TAG == 6);
        OK(MPI_Improbe(MPI_ANY_SOURCE, MPI_ANY_TAG, MPI_COMM_WORLD, &flag, &message, &status));
        CHECK(!flag);
    }
    OK(MPI_Barrier(MPI_COMM_WORLD));
    if (rank == 0) {
        OK(MPI_Ssend(&first, 1, MPI_INT, 1, 8, MPI_COMM_WORLD));
    } else if (rank == 1) {
        /* A synchronous send is received through a matched probe, and so completes. */
        MPI_Message other;
        OK(MPI_Mprobe(0, 8, MPI_COMM_WORLD, &other, MPI_STATUS_IGNORE));
        OK(MPI_Mrecv(&value, 1, MPI_INT, &other, MPI_STATUS_IGNORE));
        CHECK(value == 11);
    }
}

/* Messages taken by matched probes may be received in any order. */
static void held(void)
{
    int values[3] = {1, 2, 3}, value;
    MPI_Message messages[3];
    MPI_Request requests[3];
    if (rank == 0) {
        for (int i = 0; i < 3; i++)
            OK(MPI_Isend(&values[i], 1, MPI_INT, 1, 9, MPI_COMM_WORLD, &requests[i]));
        OK(MPI_Waitall(3, requests, MPI_STATUSES_IGNORE));
    }
    if (rank == 1) {
        for (int i = 0; i < 3; i++)
            OK(MPI_Mprobe(MPI_ANY_SOURCE, 9, MPI_COMM_WORLD, &messages[i], MPI_STATUS_IGNORE));
        for (int i = 2; i >= 0; i--) {
            OK(MPI_Mrecv(&value, 1, MPI_INT, &messages[i], MPI_STATUS_IGNORE));
            CHECK(value == i + 1);
        }
    }
}

static void nobody(void)
{
    MPI_Message message = MPI_MESSAGE_NULL;
    MPI_Status status;
    int flag = 0;
    count_t count;
    OK(MPI_Probe(MPI_PROC_NULL, 3, MPI_COMM_WORLD, &status));
    CHECK(status.MPI_SOURCE == MPI_PROC_NULL && status.MPI_TAG == MPI_ANY_TAG);
    OK(MPI_Iprobe(MPI_PROC_NULL, 3, MPI_COMM_WORLD, &flag, &status));
    CHECK(flag && status.MPI_SOURCE == MPI_PROC_NULL);
    OK(MPI_Mprobe(MPI_PROC_NULL, 3, MPI_COMM_WORLD, &message, &status));
    CHECK(message == MPI_MESSAGE_NO_PROC);
    OK(MPI_Mrecv(NULL, 0, MPI_BYTE, &message, &status));
    OK(MPI_Get_count(&status, MPI_BYTE, &count));
    CHECK(message == MPI_MESSAGE_NULL && count == 0 && status.MPI_SOURCE == MPI_PROC_NULL);
}

int main(int argc, char **argv)
{
    begin(&argc, &argv);
    EACH_SIZE (bytes, 1 << 20) {
        probe_then_receive(bytes, 0);
        probe_then_receive(bytes, 1);
    }
    sight();
    held();
    nobody();
    return end();
}
