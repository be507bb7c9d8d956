/* Of several complete requests, waiting for any gives the one that completed first, and waiting for some gives them in that order:
 * messages of one sender are seen in the order in which they were sent, whatever the order of their receives.
 * ranks: 2
 */
#include "world.h"

/* A look at many requests remembers what comes next; few are looked at each time. */
enum { FEW = 16, MANY = 48, LAST = MANY };
static int amount;

static int order[MANY];
static MPI_Request requests[MANY];

/* The n-th message has this tag. */
static int tag_of(int n)
{
    return (n * 7 + 5) % amount;
}

/* Rank 0 has receives by tag, and all of their messages have come. Half of the messages are too large for the header's line. */
static void post(int persistent)
{
    static char blocks[MANY][4000];
    OK(MPI_Barrier(MPI_COMM_WORLD));
    if (rank == 1) {
        OK(MPI_Barrier(MPI_COMM_WORLD));
        for (int n = 0; n < amount; n++) {
            OK(MPI_Send(blocks[n], n % 2 ? 4000 : 4, MPI_BYTE, 0, tag_of(n), MPI_COMM_WORLD));
        }
        OK(MPI_Send(NULL, 0, MPI_BYTE, 0, LAST, MPI_COMM_WORLD));
        return;
    }
    for (int tag = 0; tag < amount; tag++) {
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
    for (int n = 0; n < amount; n++) {
        MPI_Status status;
        int index = -1, flag = 0;
        switch (how) {
        case 0:
            OK(MPI_Waitany(amount, requests, &index, &status));
            break;
        case 1:
            OK(MPI_Testany(amount, requests, &index, &flag, &status));
            CHECK(flag);
            break;
        default:
            OK(MPI_Request_get_status_any(amount, requests, &index, &flag, &status));
            CHECK(flag && index == tag_of(n));
            OK(MPI_Wait(&requests[index], &status));
        }
        CHECK(index == tag_of(n) && status.MPI_TAG == index);
    }
}

static void all_at_once(int wait)
{
    MPI_Status statuses[MANY];
    int count;
    if (wait) {
        OK(MPI_Waitsome(amount, requests, &count, order, statuses));
    } else {
        OK(MPI_Testsome(amount, requests, &count, order, statuses));
    }
    CHECK(count == amount);
    for (int n = 0; n < amount; n++) {
        CHECK(order[n] == tag_of(n) && statuses[n].MPI_TAG == order[n]);
    }
}

/* A request that takes the place of one that was given, and completes last, comes last. */
static void in_place_of_the_first(void)
{
    post(0);
    if (rank == 1) {
        OK(MPI_Send(NULL, 0, MPI_BYTE, 0, LAST + 1, MPI_COMM_WORLD));
        return;
    }
    int index, first = tag_of(0);
    OK(MPI_Waitany(amount, requests, &index, MPI_STATUS_IGNORE));
    CHECK(index == first);
    OK(MPI_Irecv(NULL, 0, MPI_BYTE, 1, LAST + 1, MPI_COMM_WORLD, &requests[index]));
    int flag = 0;
    while (!flag) {
        OK(MPI_Request_get_status(requests[index], &flag, MPI_STATUS_IGNORE));
    }
    for (int n = 1; n < amount; n++) {
        OK(MPI_Waitany(amount, requests, &index, MPI_STATUS_IGNORE));
        CHECK(index == tag_of(n));
        CHECK(requests[index] == MPI_REQUEST_NULL);
    }
    OK(MPI_Waitany(amount, requests, &index, MPI_STATUS_IGNORE));
    CHECK(index == first);
    OK(MPI_Waitany(amount, requests, &index, MPI_STATUS_IGNORE));
    CHECK(index == MPI_UNDEFINED);
}

static void each_way(void)
{
    for (int persistent = 0; persistent < 2; persistent++) {
        for (int how = 0; how < 5; how++) {
            post(persistent);
            if (rank == 0) {
                how < 3 ? one_by_one(how) : all_at_once(how == 3);
                for (int tag = 0; persistent && tag < amount; tag++) {
                    OK(MPI_Request_free(&requests[tag]));
                }
            }
        }
    }
    in_place_of_the_first();
}

int main(int argc, char **argv)
{
    begin(&argc, &argv);
    amount = FEW;
    each_way();
    amount = MANY;
    each_way();
    return end();
}
