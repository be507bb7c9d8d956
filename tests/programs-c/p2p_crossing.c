/* Long messages that cross, in exchanges and in windows, between pairs: all arrive as they left. Programs that count on a blocking send to leave at once, as
 * messages of these lengths do, or on one that is waited for where nothing is expected, go on when messages have crossed before.
 * ranks: 2 4
 * timeout: 120
 */
#include "world.h"

#include <string.h>

enum { MOST = 128 << 10, WINDOW = 16, ROUNDS = 600 };

static unsigned char *from, *into;
static int peer;

static void put(int round, int at, int bytes)
{
    memset(from + (size_t)at * MOST, (unsigned char)(round * 7 + at * 3 + rank), (size_t)bytes);
    from[(size_t)at * MOST + bytes - 1] = (unsigned char)(round + 1);
    memset(into + (size_t)at * MOST, 0, (size_t)bytes);
}

static void check(int round, int at, int bytes)
{
    const unsigned char *got = into + (size_t)at * MOST;
    for (int i = 0; i < bytes - 1; i++)
        CHECK(got[i] == (unsigned char)(round * 7 + at * 3 + peer));
    CHECK(got[bytes - 1] == (unsigned char)(round + 1));
}

static void exchange(int kind, int round, int bytes)
{
    MPI_Request request;
    put(round, 0, bytes);
    switch (kind) {
    case 0:
        OK(MPI_Sendrecv(from, bytes, MPI_BYTE, peer, 1, into, bytes, MPI_BYTE, peer, 1, MPI_COMM_WORLD, MPI_STATUS_IGNORE));
        break;
    case 1:
        OK(MPI_Send(from, bytes, MPI_BYTE, peer, 1, MPI_COMM_WORLD));
        OK(MPI_Recv(into, bytes, MPI_BYTE, peer, 1, MPI_COMM_WORLD, MPI_STATUS_IGNORE));
        break;
    case 2:
        OK(MPI_Isend(from, bytes, MPI_BYTE, peer, 1, MPI_COMM_WORLD, &request));
        OK(MPI_Wait(&request, MPI_STATUS_IGNORE));
        OK(MPI_Recv(into, bytes, MPI_BYTE, peer, 1, MPI_COMM_WORLD, MPI_STATUS_IGNORE));
        break;
    default:
        /* A receive is posted, and the first message is asked for last. */
        OK(MPI_Irecv(into, bytes, MPI_BYTE, peer, 1, MPI_COMM_WORLD, &request));
        OK(MPI_Send(from, bytes, MPI_BYTE, peer, 2, MPI_COMM_WORLD));
        OK(MPI_Send(from, bytes, MPI_BYTE, peer, 1, MPI_COMM_WORLD));
        OK(MPI_Wait(&request, MPI_STATUS_IGNORE));
        check(round, 0, bytes);
        OK(MPI_Recv(into, bytes, MPI_BYTE, peer, 2, MPI_COMM_WORLD, MPI_STATUS_IGNORE));
    }
    check(round, 0, bytes);
}

static void window(int round, int bytes)
{
    MPI_Request requests[2 * WINDOW];
    for (int at = 0; at < WINDOW; at++)
        put(round, at, bytes);
    for (int at = 0; at < WINDOW; at++)
        OK(MPI_Irecv(into + (size_t)at * MOST, bytes, MPI_BYTE, peer, at, MPI_COMM_WORLD, &requests[at]));
    for (int at = 0; at < WINDOW; at++)
        OK(MPI_Isend(from + (size_t)at * MOST, bytes, MPI_BYTE, peer, at, MPI_COMM_WORLD, &requests[WINDOW + at]));
    OK(MPI_Waitall(2 * WINDOW, requests, MPI_STATUSES_IGNORE));
    for (int at = 0; at < WINDOW; at++)
        check(round, at, bytes);
}

int main(int argc, char **argv)
{
    begin(&argc, &argv);
    peer = rank ^ 1;
    from = memory_of((size_t)WINDOW * MOST);
    into = memory_of((size_t)WINDOW * MOST);
    static const int lengths[] = {12 << 10, 32 << 10, 100 << 10};
    for (int l = 0; l < 3; l++) {
        for (int round = 0; round < ROUNDS; round++)
            exchange(0, round, lengths[l]);
        for (int kind = 1; kind < 4; kind++)
            for (int round = 0; round < 40; round++)
                exchange(kind, round, lengths[l]);
        for (int round = 0; round < ROUNDS / WINDOW; round++)
            window(round, lengths[l]);
    }
    free(from);
    free(into);
    return end();
}
