/* Wait and test, one, any, some, all; their rules for null requests; request status without freeing.
 * ranks: 1 2
 */
#include "world.h"

enum { COUNT = 8 };

static int peer, in[COUNT], out[COUNT];
static MPI_Request requests[COUNT];

static void post(void)
{
    for (int i = 0; i < COUNT; i++) {
        in[i] = -1;
        OK(MPI_Irecv(&in[i], 1, MPI_INT, peer, i, MPI_COMM_WORLD, &requests[i]));
    }
}

static void send_all(void)
{
    for (int i = COUNT - 1; i >= 0; i--) {
        out[i] = 100 + i;
        OK(MPI_Send(&out[i], 1, MPI_INT, peer, i, MPI_COMM_WORLD));
    }
}

/* As MPI-5.0 3.7.3 defines it, error included. */
static void check_empty(MPI_Status *status)
{
    int count, cancelled;
    OK(MPI_Get_count(status, MPI_BYTE, &count));
    OK(MPI_Test_cancelled(status, &cancelled));
    CHECK(status->MPI_SOURCE == MPI_ANY_SOURCE && status->MPI_TAG == MPI_ANY_TAG && status->MPI_ERROR == MPI_SUCCESS);
    CHECK(count == 0 && !cancelled);
    memset(status, 0x5a, sizeof *status);
}

static void nulls(void)
{
    MPI_Request none[3] = {MPI_REQUEST_NULL, MPI_REQUEST_NULL, MPI_REQUEST_NULL};
    MPI_Status status, statuses[3];
    int flag = 0, index = 0, count = 0, indices[3];
    memset(&status, 0x5a, sizeof status);
    OK(MPI_Wait(&none[0], &status));
    check_empty(&status);
    OK(MPI_Test(&none[0], &flag, &status));
    CHECK(flag);
    check_empty(&status);
    OK(MPI_Waitany(3, none, &index, &status));
    CHECK(index == MPI_UNDEFINED);
    check_empty(&status);
    flag = 0;
    OK(MPI_Testany(3, none, &index, &flag, &status));
    CHECK(flag && index == MPI_UNDEFINED);
    check_empty(&status);
    flag = 0;
    OK(MPI_Request_get_status(none[0], &flag, &status));
    CHECK(flag);
    check_empty(&status);
    flag = 0;
    OK(MPI_Request_get_status_any(3, none, &index, &flag, &status));
    CHECK(flag && index == MPI_UNDEFINED);
    check_empty(&status);
    OK(MPI_Waitsome(3, none, &count, indices, statuses));
    CHECK(count == MPI_UNDEFINED);
    OK(MPI_Testsome(3, none, &count, indices, statuses));
    CHECK(count == MPI_UNDEFINED);
    flag = 0;
    OK(MPI_Testall(3, none, &flag, statuses));
    CHECK(flag);
    check_empty(&statuses[2]);
    OK(MPI_Waitall(0, NULL, MPI_STATUSES_IGNORE));
}

static void any(int test)
{
    int seen[COUNT] = {0}, index, flag;
    post();
    send_all();
    for (int done = 0; done < COUNT; done++) {
        MPI_Status status;
        if (test)
            do
                OK(MPI_Testany(COUNT, requests, &index, &flag, &status));
            while (!flag);
        else
            OK(MPI_Waitany(COUNT, requests, &index, &status));
        CHECK(index >= 0 && index < COUNT && !seen[index]++);
        CHECK(requests[index] == MPI_REQUEST_NULL && in[index] == 100 + index && status.MPI_TAG == index);
    }
}

static void some(int test)
{
    int done = 0, count, indices[COUNT], seen[COUNT] = {0};
    MPI_Status statuses[COUNT];
    post();
    send_all();
    while (done < COUNT) {
        if (test)
            OK(MPI_Testsome(COUNT, requests, &count, indices, statuses));
        else
            OK(MPI_Waitsome(COUNT, requests, &count, indices, statuses));
        CHECK(count >= !test && count <= COUNT - done);
        for (int i = 0; i < count; i++)
            CHECK(!seen[indices[i]]++ && statuses[i].MPI_TAG == indices[i] && in[indices[i]] == 100 + indices[i]);
        done += count;
    }
}

static void all(int test)
{
    MPI_Status statuses[COUNT];
    int flag = 0;
    post();
    if (test) {
        OK(MPI_Testall(COUNT, requests, &flag, statuses));
        if (!flag)
            for (int i = 0; i < COUNT; i++)
                CHECK(requests[i] != MPI_REQUEST_NULL); /* all or nothing */
    }
    send_all();
    while (test && !flag)
        OK(MPI_Testall(COUNT, requests, &flag, statuses));
    if (!test)
        OK(MPI_Waitall(COUNT, requests, statuses));
    for (int i = 0; i < COUNT; i++)
        CHECK(requests[i] == MPI_REQUEST_NULL && statuses[i].MPI_TAG == i && in[i] == 100 + i);
}

/* One of many fails: MPI_ERR_IN_STATUS, and each status tells of its own. */
static void in_status(void)
{
    MPI_Status statuses[3];
    int small, numbers[4] = {1, 2, 3, 4}, right[2], class;
    OK(MPI_Irecv(&right[0], 1, MPI_INT, peer, 1, MPI_COMM_WORLD, &requests[0]));
    OK(MPI_Irecv(&small, 1, MPI_INT, peer, 2, MPI_COMM_WORLD, &requests[1]));
    OK(MPI_Irecv(&right[1], 1, MPI_INT, peer, 3, MPI_COMM_WORLD, &requests[2]));
    OK(MPI_Send(numbers, 1, MPI_INT, peer, 1, MPI_COMM_WORLD));
    OK(MPI_Send(numbers, 4, MPI_INT, peer, 2, MPI_COMM_WORLD));
    OK(MPI_Send(numbers + 1, 1, MPI_INT, peer, 3, MPI_COMM_WORLD));
    FAILS(MPI_ERR_IN_STATUS, MPI_Waitall(3, requests, statuses));
    OK(MPI_Error_class(statuses[1].MPI_ERROR, &class));
    CHECK(class == MPI_ERR_TRUNCATE);
    /* The others may be called pending if the call gave up early; then they are waited for. */
    for (int i = 0; i < 3; i += 2) {
        OK(MPI_Error_class(statuses[i].MPI_ERROR, &class));
        CHECK(class == MPI_SUCCESS || class == MPI_ERR_PENDING);
        if (class == MPI_ERR_PENDING)
            OK(MPI_Wait(&requests[i], MPI_STATUS_IGNORE));
    }
    CHECK(right[0] == 1 && right[1] == 2);
    OK(MPI_Barrier(MPI_COMM_WORLD));
}

static void status_only(void)
{
    int value = 0, sent = 6, flag = 1, index, count, indices[COUNT];
    MPI_Status status, statuses[COUNT];
    OK(MPI_Irecv(&value, 1, MPI_INT, peer, 1, MPI_COMM_WORLD, &requests[0]));
    OK(MPI_Send(&sent, 1, MPI_INT, peer, 1, MPI_COMM_WORLD));
    do
        OK(MPI_Request_get_status(requests[0], &flag, &status));
    while (!flag);
    CHECK(value == 6 && status.MPI_TAG == 1 && requests[0] != MPI_REQUEST_NULL);
    OK(MPI_Request_get_status_any(1, requests, &index, &flag, &status));
    CHECK(flag && index == 0);
    OK(MPI_Request_get_status_all(1, requests, &flag, statuses));
    CHECK(flag && statuses[0].MPI_TAG == 1);
    OK(MPI_Request_get_status_some(1, requests, &count, indices, statuses));
    CHECK(count == 1 && indices[0] == 0);
    OK(MPI_Wait(&requests[0], &status));
    CHECK(status.MPI_SOURCE == peer && requests[0] == MPI_REQUEST_NULL);
    OK(MPI_Request_get_status(MPI_REQUEST_NULL, &flag, &status));
    CHECK(flag && status.MPI_SOURCE == MPI_ANY_SOURCE);
}

/* A request freed before it is done does its work all the same. */
static void freed(void)
{
    enum { BYTES = 200000 };
    unsigned char *sent = memory_of(BYTES), *got = memory_of(BYTES);
    MPI_Request request, receive;
    fill(sent, BYTES, 2);
    OK(MPI_Irecv(got, BYTES, MPI_BYTE, peer, 4, MPI_COMM_WORLD, &receive));
    OK(MPI_Isend(sent, BYTES, MPI_BYTE, peer, 4, MPI_COMM_WORLD, &request));
    OK(MPI_Request_free(&request));
    CHECK(request == MPI_REQUEST_NULL);
    OK(MPI_Wait(&receive, MPI_STATUS_IGNORE));
    CHECK(holds(got, BYTES, 2));
    OK(MPI_Barrier(MPI_COMM_WORLD));
    free(sent);
    free(got);
}

int main(int argc, char **argv)
{
    begin(&argc, &argv);
    peer = size - 1 - rank;
    nulls();
    for (int test = 0; test < 2; test++) {
        any(test);
        OK(MPI_Barrier(MPI_COMM_WORLD));
        some(test);
        OK(MPI_Barrier(MPI_COMM_WORLD));
        all(test);
        OK(MPI_Barrier(MPI_COMM_WORLD));
    }
    in_status();
    status_only();
    freed();
    return end();
}
