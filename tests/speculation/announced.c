/* Receives that come before their messages, in every way in which an announcement can be used, wasted or taken back. Run by all.sh. */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define OK(call) do { int code = (call); if (code != MPI_SUCCESS) { fprintf(stderr, "%s:%d: %s gave %d\n", __FILE__, __LINE__, #call, code); MPI_Abort(MPI_COMM_WORLD, 9); } } while (0)
#define CHECK(what) do { if (!(what)) { fprintf(stderr, "%s:%d: rank %d: not so: %s\n", __FILE__, __LINE__, rank, #what); MPI_Abort(MPI_COMM_WORLD, 8); } } while (0)

enum { LARGE = 300000, HUGE_BYTES = 3 << 20, SMALL = 100, ROUNDS = 60 };

static int rank, size;
static unsigned char *out, *in[8];

static void fill(unsigned char *buffer, int bytes, int seed)
{
    for (int i = 0; i < bytes; i++)
        buffer[i] = (unsigned char)(seed * 31 + i * 7 + (i >> 10));
}

static int holds(const unsigned char *buffer, int bytes, int seed)
{
    for (int i = 0; i < bytes; i++)
        if (buffer[i] != (unsigned char)(seed * 31 + i * 7 + (i >> 10)))
            return 0;
    return 1;
}

/* Long enough that the other rank comes later. */
static void work(void)
{
    volatile double x = 1;
    for (int i = 0; i < 200000; i++)
        x = x * 1.0000001 + 0.5;
}

/* The receive is there, then the message is sent: by a blocking call, by one that computes before it waits, or synchronously. */
static void receiver_first(int bytes)
{
    for (int round = 0; round < ROUNDS; round++) {
        MPI_Request request;
        if (rank == 0) {
            OK(MPI_Irecv(in[0], HUGE_BYTES, MPI_BYTE, 1, 1, MPI_COMM_WORLD, &request));
            OK(MPI_Send(NULL, 0, MPI_BYTE, 1, 2, MPI_COMM_WORLD));
            if (round % 2)
                work();
            MPI_Status status;
            int count;
            OK(MPI_Wait(&request, &status));
            OK(MPI_Get_count(&status, MPI_BYTE, &count));
            CHECK(count == bytes && status.MPI_SOURCE == 1 && status.MPI_TAG == 1);
            CHECK(holds(in[0], bytes, round));
        } else if (rank == 1) {
            OK(MPI_Recv(NULL, 0, MPI_BYTE, 0, 2, MPI_COMM_WORLD, MPI_STATUS_IGNORE));
            fill(out, bytes, round);
            if (round % 3 == 0)
                OK(MPI_Send(out, bytes, MPI_BYTE, 0, 1, MPI_COMM_WORLD));
            else if (round % 3 == 1)
                OK(MPI_Ssend(out, bytes, MPI_BYTE, 0, 1, MPI_COMM_WORLD));
            else {
                OK(MPI_Isend(out, bytes, MPI_BYTE, 0, 1, MPI_COMM_WORLD, &request));
                work();
                OK(MPI_Wait(&request, MPI_STATUS_IGNORE));
            }
        }
    }
}

/* Several receives of one envelope, and messages of which some are short: each takes its own. */
static void several_of_one_envelope(void)
{
    for (int round = 0; round < ROUNDS; round++) {
        MPI_Request requests[8];
        if (rank == 0) {
            for (int i = 0; i < 8; i++)
                OK(MPI_Irecv(in[i], LARGE, MPI_BYTE, i == 5 && round % 3 == 0 ? MPI_ANY_SOURCE : 1, i % 4 == 2 ? MPI_ANY_TAG : 3, MPI_COMM_WORLD, &requests[i]));
            if (round % 2)
                OK(MPI_Send(NULL, 0, MPI_BYTE, 1, 2, MPI_COMM_WORLD));
            OK(MPI_Waitall(8, requests, MPI_STATUSES_IGNORE));
            if (round % 2 == 0)
                OK(MPI_Send(NULL, 0, MPI_BYTE, 1, 2, MPI_COMM_WORLD));
            for (int i = 0; i < 8; i++)
                CHECK(holds(in[i], (i + round) % 3 ? LARGE : SMALL, i + 100 * round));
        } else if (rank == 1) {
            if (round % 2)
                OK(MPI_Recv(NULL, 0, MPI_BYTE, 0, 2, MPI_COMM_WORLD, MPI_STATUS_IGNORE));
            for (int i = 0; i < 8; i++) {
                int bytes = (i + round) % 3 ? LARGE : SMALL;
                fill(out, bytes, i + 100 * round);
                OK(MPI_Send(out, bytes, MPI_BYTE, 0, 3, MPI_COMM_WORLD));
            }
            if (round % 2 == 0)
                OK(MPI_Recv(NULL, 0, MPI_BYTE, 0, 2, MPI_COMM_WORLD, MPI_STATUS_IGNORE));
        }
    }
}

/* An announced receive that is cancelled is not written to, and the message goes to the next. */
static void cancelled(void)
{
    for (int round = 0; round < ROUNDS; round++) {
        MPI_Request first, second;
        if (rank == 0) {
            MPI_Status status;
            int flag;
            memset(in[0], 1, LARGE);
            OK(MPI_Irecv(in[0], LARGE, MPI_BYTE, 1, 4, MPI_COMM_WORLD, &first));
            OK(MPI_Irecv(in[1], LARGE, MPI_BYTE, 1, round % 2 ? MPI_ANY_TAG : 4, MPI_COMM_WORLD, &second));
            if (round % 4 > 1)
                OK(MPI_Send(NULL, 0, MPI_BYTE, 1, 5, MPI_COMM_WORLD));
            OK(MPI_Cancel(&first));
            OK(MPI_Wait(&first, &status));
            OK(MPI_Test_cancelled(&status, &flag));
            if (round % 4 <= 1) {
                CHECK(flag);
                OK(MPI_Send(NULL, 0, MPI_BYTE, 1, 5, MPI_COMM_WORLD));
            }
            /* Where the first was too late to be cancelled it has the message, and the second gets another. */
            OK(MPI_Send(&flag, 1, MPI_INT, 1, 6, MPI_COMM_WORLD));
            OK(MPI_Wait(&second, &status));
            CHECK(flag ? in[0][0] == 1 && in[0][LARGE - 1] == 1 : holds(in[0], LARGE, round));
            CHECK(holds(in[1], LARGE, flag ? round : round + 1));
        } else if (rank == 1) {
            int flag;
            OK(MPI_Recv(NULL, 0, MPI_BYTE, 0, 5, MPI_COMM_WORLD, MPI_STATUS_IGNORE));
            fill(out, LARGE, round);
            OK(MPI_Isend(out, LARGE, MPI_BYTE, 0, 4, MPI_COMM_WORLD, &first));
            OK(MPI_Recv(&flag, 1, MPI_INT, 0, 6, MPI_COMM_WORLD, MPI_STATUS_IGNORE));
            OK(MPI_Wait(&first, MPI_STATUS_IGNORE));
            if (!flag) {
                fill(out, LARGE, round + 1);
                OK(MPI_Send(out, LARGE, MPI_BYTE, 0, 4, MPI_COMM_WORLD));
            }
        }
    }
}

/* Everybody with everybody, receives first, persistent requests too. */
static void exchange(void)
{
    int left = (rank + size - 1) % size, right = (rank + 1) % size;
    MPI_Request requests[4];
    OK(MPI_Recv_init(in[0], LARGE, MPI_BYTE, left, 7, MPI_COMM_WORLD, &requests[0]));
    OK(MPI_Recv_init(in[1], LARGE, MPI_BYTE, right, 8, MPI_COMM_WORLD, &requests[1]));
    OK(MPI_Send_init(out, LARGE, MPI_BYTE, right, 7, MPI_COMM_WORLD, &requests[2]));
    OK(MPI_Send_init(out, LARGE, MPI_BYTE, left, 8, MPI_COMM_WORLD, &requests[3]));
    for (int round = 0; round < ROUNDS; round++) {
        OK(MPI_Startall(2, requests));
        fill(out, LARGE, rank + 10 * round);
        OK(MPI_Startall(2, requests + 2));
        if (round % 2)
            work();
        OK(MPI_Waitall(4, requests, MPI_STATUSES_IGNORE));
        CHECK(holds(in[0], LARGE, left + 10 * round));
        CHECK(holds(in[1], LARGE, right + 10 * round));
    }
    for (int i = 0; i < 4; i++)
        OK(MPI_Request_free(&requests[i]));
}

/* A message that is longer than the receive is truncated, and nothing past the receive is written. */
static void truncated(void)
{
    for (int round = 0; round < 10; round++) {
        MPI_Request request;
        if (rank == 0) {
            memset(in[0], 3, HUGE_BYTES);
            OK(MPI_Irecv(in[0], LARGE, MPI_BYTE, 1, 9, MPI_COMM_WORLD, &request));
            OK(MPI_Send(NULL, 0, MPI_BYTE, 1, 2, MPI_COMM_WORLD));
            int class;
            OK(MPI_Error_class(MPI_Wait(&request, MPI_STATUS_IGNORE), &class));
            CHECK(class == MPI_ERR_TRUNCATE);
            CHECK(in[0][LARGE] == 3 && in[0][HUGE_BYTES - 1] == 3);
        } else if (rank == 1) {
            OK(MPI_Recv(NULL, 0, MPI_BYTE, 0, 2, MPI_COMM_WORLD, MPI_STATUS_IGNORE));
            OK(MPI_Send(out, HUGE_BYTES, MPI_BYTE, 0, 9, MPI_COMM_WORLD));
        }
    }
}

/* Two receives from any source among two ranks, where messages come from the other rank and from this one. */
static void any_source(void)
{
    MPI_Comm pair;
    OK(MPI_Comm_split(MPI_COMM_WORLD, rank / 2, 0, &pair));
    int members, me;
    OK(MPI_Comm_size(pair, &members));
    OK(MPI_Comm_rank(pair, &me));
    for (int round = 0; round < ROUNDS && members == 2; round++) {
        int peer = 1 - me, bytes = round % 3 == 2 ? SMALL : LARGE, to_self = round % 4 != 3;
        MPI_Request receives[2], sends[2];
        MPI_Status statuses[2];
        OK(MPI_Irecv(in[0], HUGE_BYTES, MPI_BYTE, MPI_ANY_SOURCE, 10, pair, &receives[0]));
        OK(MPI_Irecv(in[1], HUGE_BYTES, MPI_BYTE, MPI_ANY_SOURCE, round % 5 ? 10 : MPI_ANY_TAG, pair, &receives[1]));
        if (round % 2 == me)
            work();
        fill(out, bytes, me + 2 * round);
        /* Each rank gets one from itself and one from the other, or two from the other. */
        OK(MPI_Isend(out, bytes, MPI_BYTE, to_self ? me : peer, 10, pair, &sends[0]));
        OK(MPI_Isend(out, bytes, MPI_BYTE, peer, 10, pair, &sends[1]));
        OK(MPI_Waitall(2, receives, statuses));
        OK(MPI_Waitall(2, sends, MPI_STATUSES_IGNORE));
        for (int i = 0; i < 2; i++) {
            CHECK(statuses[i].MPI_SOURCE == me ? to_self : statuses[i].MPI_SOURCE == peer);
            CHECK(holds(in[i], bytes, statuses[i].MPI_SOURCE + 2 * round));
        }
        CHECK(!to_self || statuses[0].MPI_SOURCE != statuses[1].MPI_SOURCE);
        OK(MPI_Barrier(pair));
    }
    OK(MPI_Comm_free(&pair));
}

/* Receives of one kind that come first; how many of them were announced and answered, the report says. */
static void one_kind(const char *kind)
{
    int partitioned = strcmp(kind, "partitioned") == 0;
    MPI_Request request;
    if (rank == 0 && partitioned)
        OK(MPI_Precv_init(in[0], 2, LARGE / 2, MPI_BYTE, 1, 11, MPI_COMM_WORLD, MPI_INFO_NULL, &request));
    else if (rank == 0)
        OK(MPI_Recv_init(in[0], LARGE, MPI_BYTE, strcmp(kind, "any_source") == 0 ? MPI_ANY_SOURCE : 1, 11, MPI_COMM_WORLD, &request));
    else if (partitioned)
        OK(MPI_Psend_init(out, 2, LARGE / 2, MPI_BYTE, 0, 11, MPI_COMM_WORLD, MPI_INFO_NULL, &request));
    else
        OK(MPI_Send_init(out, LARGE, MPI_BYTE, 0, 11, MPI_COMM_WORLD, &request));
    for (int round = 0; round < ROUNDS; round++) {
        if (rank == 0)
            OK(MPI_Start(&request));
        OK(MPI_Barrier(MPI_COMM_WORLD));
        if (rank == 1) {
            fill(out, LARGE, round);
            OK(MPI_Start(&request));
            if (partitioned)
                OK(MPI_Pready_range(0, 1, request));
        }
        OK(MPI_Wait(&request, MPI_STATUS_IGNORE));
        CHECK(rank == 1 || holds(in[0], LARGE, round));
    }
    OK(MPI_Request_free(&request));
}

int main(int argc, char **argv)
{
    OK(MPI_Init(&argc, &argv));
    OK(MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN));
    OK(MPI_Comm_rank(MPI_COMM_WORLD, &rank));
    OK(MPI_Comm_size(MPI_COMM_WORLD, &size));
    out = malloc(HUGE_BYTES);
    for (int i = 0; i < 8; i++)
        in[i] = malloc(HUGE_BYTES);
    if (argc > 1) {
        one_kind(argv[1]);
        OK(MPI_Finalize());
        return 0;
    }
    receiver_first(LARGE);
    receiver_first(HUGE_BYTES);
    receiver_first(SMALL);
    several_of_one_envelope();
    cancelled();
    exchange();
    truncated();
    any_source();
    OK(MPI_Barrier(MPI_COMM_WORLD));
    OK(MPI_Finalize());
    return 0;
}
