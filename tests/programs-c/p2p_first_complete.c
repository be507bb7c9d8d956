/* Of several complete requests, waiting for any gives the one that completed first, and waiting for some gives them in that order:
 * messages of one sender are seen in the order in which they were sent, whatever the order of their receives.
 * ranks: 2
 */
#include "world.h"

enum { COUNT = 16, LAST = COUNT };

static int order[COUNT];
static MPI_Request requests[COUNT];

/* The n-th message has this tag. */
static int tag_of(int n)
{
    return (n * 7 + 5) % COUNT;
}

/* Rank 0 has receives by tag, and all of their messages have come. Half of the messages are too large for the header's line. */
static void post(int persistent)
{
    static char blocks[COUNT][4000];
    OK(MPI_Barrier(MPI_COMM_WORLD));
    if (rank == 1) {
        OK(MPI_Barrier(MPI_COMM_WORLD));
        for (int n = 0; n < COUNT; n++) {
            OK(MPI_Send(blocks[n], n % 2 ? 4000 : 4, MPI_BYTE, 0, tag_of(n), MPI_COMM_WORLD));
        }
        OK(MPI_Send(NULL, 0, MPI_BYTE, 0, LAST, MPI_COMM_WORLD));
        return;
    }
    for (int tag = 0; tag < COUNT; tag++) {
        if (persistent) {
            OK(MPI_Recv_init(blocks[tag], 4000, MPI_BYTE, 1, tag, MPI_COMM_WORLD, &requests[tag]));
            OK(MPI_Start(&requests[tag]));
        } else {
            OK(MPI_Irecv(blocks[tag], 4000, MPI_BYTE, 1, tag, MPI_COMM_WORLD, &requests[tag]));
        }
    }
    OK(MPI_Barrier(MPI_COMM_WORLD));
    OK(MPI_Recv(NULL, 0, MPI_BYTE, 1, LAST, MPI_COMM_WORLD, MPI_STATUS_IGNORE));
}

static void one_by_one(int how)
{
    for (int n = 0; n < COUNT; n++) {
        MPI_Status status;
        int index = -1, flag = 0;
        switch (how) {
        case 0:
            OK(MPI_Waitany(COUNT, requests, &index, &status));
            break;
        case 1:
            OK(MPI_Testany(COUNT, requests, &index, &flag, &status));
            CHECK(flag);
            break;
        default:
            OK(MPI_Request_get_status_any(COUNT, requests, &index, &flag, &status));
            CHECK(flag && index == tag_of(n));
            OK(MPI_Wait(&requests[index], &status));
        }
        CHECK(index == tag_of(n) && status.MPI_TAG == index);
    }
}

static void all_at_once(int wait)
{
    MPI_Status statuses[COUNT];
    int count;
    if (wait) {
        OK(MPI_Waitsome(COUNT, requests, &count, order, statuses));
    } else {
        OK(MPI_Testsome(COUNT, requests, &count, order, statuses));
    }
    CHECK(count == COUNT);
    for (int n = 0; n < COUNT; n++) {
        CHECK(order[n] == tag_of(n) && statuses[n].MPI_TAG == order[n]);
    }
}

int main(int argc, char **argv)
{
    begin(&argc, &argv);
    for (int persistent = 0; persistent < 2; persistent++) {
        for (int how = 0; how < 5; how++) {
            post(persistent);
            if (rank == 0) {
                how < 3 ? one_by_one(how) : all_at_once(how == 3);
                for (int tag = 0; persistent && tag < COUNT; tag++) {
                    OK(MPI_Request_free(&requests[tag]));
                }
            }
        }
    }
    return end();
}
