/* Partitioned communication: any partitions on both sides, any order of being ready, started again and again, partial arrival.
 * ranks: 1 2 4
 */
#include "world.h"

static uint64_t state = 1;

/* The sender's partitions in a random order, some alone, some as lists or ranges. */
static void all_ready(MPI_Request request, int partitions)
{
    int *order = memory_of(sizeof(int) * (size_t)partitions);
    for (int i = 0; i < partitions; i++) {
        int j = (int)(draw(&state) % (uint64_t)(i + 1));
        order[i] = order[j];
        order[j] = i;
    }
    int at = 0;
    while (at < partitions) {
        int some = 1 + (int)(draw(&state) % (uint64_t)(partitions - at));
        if (draw(&state) % 2) {
            OK(MPI_Pready_list(some, order + at, request));
        } else {
            for (int i = 0; i < some; i++)
                OK(MPI_Pready(order[at + i], request));
        }
        at += some;
    }
    free(order);
}

/* Total bytes cut into `out` partitions here and `in` partitions there; to the next rank, from the one before. */
static void exchange(int total, int out, int in, MPI_Comm comm, int tag, int late)
{
    int next = (rank + 1) % size, before = (rank + size - 1) % size, rounds = 4;
    unsigned char *data = memory_of((size_t)total), *room = memory_of((size_t)total);
    MPI_Request requests[2];
    MPI_Status statuses[2];
    if (!late)
        OK(MPI_Precv_init(room, in, total / in, MPI_BYTE, before, tag, comm, MPI_INFO_NULL, &requests[1]));
    OK(MPI_Psend_init(data, out, total / out, MPI_BYTE, next, tag, comm, MPI_INFO_NULL, &requests[0]));
    if (late)
        OK(MPI_Precv_init(room, in, total / in, MPI_BYTE, before, tag, comm, MPI_INFO_NULL, &requests[1]));
    for (int round = 0; round < rounds; round++) {
        memset(room, 0xee, (size_t)total);
        fill(data, (size_t)total, (unsigned)(rank + 10 * round));
        if (round % 2) {
            OK(MPI_Startall(2, requests));
        } else {
            OK(MPI_Start(&requests[0]));
            all_ready(requests[0], out);
            OK(MPI_Start(&requests[1]));
        }
        if (round % 2)
            all_ready(requests[0], out);
        if (draw(&state) % 2) {
            for (int p = 0; p < in; p++) {
                int here = 0, bytes = total / in;
                while (!here)
                    OK(MPI_Parrived(requests[1], p, &here));
                for (int i = p * bytes; i < (p + 1) * bytes; i++)
                    CHECK(room[i] == pattern((size_t)i, (unsigned)(before + 10 * round)));
            }
        }
        OK(MPI_Waitall(2, requests, statuses));
        CHECK(holds(room, (size_t)total, (unsigned)(before + 10 * round)));
        int count;
        OK(MPI_Get_count(&statuses[1], MPI_BYTE, &count));
        CHECK(count == total && statuses[1].MPI_SOURCE == before && statuses[1].MPI_TAG == tag);
    }
    OK(MPI_Request_free(&requests[0]));
    OK(MPI_Request_free(&requests[1]));
    free(data);
    free(room);
}

/* A partition that is ready arrives though others are not, also before the receiver starts. */
static void early(int bytes)
{
    enum { PARTS = 8 };
    if (size < 2 || rank > 1)
        return;
    unsigned char *data = memory_of((size_t)(PARTS * bytes));
    MPI_Request request;
    int flag;
    if (rank == 0) {
        OK(MPI_Psend_init(data, PARTS, bytes, MPI_BYTE, 1, 5, MPI_COMM_WORLD, MPI_INFO_NULL, &request));
        OK(MPI_Start(&request));
        for (int at = PARTS - 1; at >= 0; at--) {
            fill(data + at * bytes, (size_t)bytes, (unsigned)at);
            OK(MPI_Pready(at, request));
            OK(MPI_Test(&request, &flag, MPI_STATUS_IGNORE));
            CHECK(at == 0 || !flag);
            OK(MPI_Recv(NULL, 0, MPI_BYTE, 1, at, MPI_COMM_WORLD, MPI_STATUS_IGNORE));
        }
        OK(MPI_Wait(&request, MPI_STATUS_IGNORE));
    } else {
        OK(MPI_Precv_init(data, PARTS, bytes, MPI_BYTE, 0, 5, MPI_COMM_WORLD, MPI_INFO_NULL, &request));
        OK(MPI_Parrived(request, 3, &flag));
        CHECK(flag);
        OK(MPI_Start(&request));
        for (int at = PARTS - 1; at >= 0; at--) {
            do
                OK(MPI_Parrived(request, at, &flag));
            while (!flag);
            CHECK(holds(data + at * bytes, (size_t)bytes, (unsigned)at));
            for (int other = 0; other < PARTS; other++) {
                OK(MPI_Parrived(request, other, &flag));
                CHECK(flag == (other >= at));
            }
            OK(MPI_Test(&request, &flag, MPI_STATUS_IGNORE));
            CHECK(flag == (at == 0));
            OK(MPI_Send(NULL, 0, MPI_BYTE, 0, at, MPI_COMM_WORLD));
        }
        OK(MPI_Parrived(request, 3, &flag));
        CHECK(flag);
    }
    OK(MPI_Request_free(&request));
    free(data);
}

/* Same communicator, source and tag: the order of initialization decides, whatever is started first. */
static void order(void)
{
    enum { MANY = 5 };
    int peer = size > 1 ? rank ^ 1 : 0;
    MPI_Request out[MANY], in[MANY];
    int sent[MANY], got[MANY];
    if (peer >= size)
        return;
    for (int i = 0; i < MANY; i++) {
        sent[i] = 100 * rank + i;
        OK(MPI_Psend_init(&sent[i], 1, 1, MPI_INT, peer, 9, MPI_COMM_WORLD, MPI_INFO_NULL, &out[i]));
    }
    for (int i = 0; i < MANY; i++)
        OK(MPI_Precv_init(&got[i], 1, 1, MPI_INT, peer, 9, MPI_COMM_WORLD, MPI_INFO_NULL, &in[i]));
    /* Point-to-point messages with the same envelope are something else. */
    int plain = -1, mine = 7;
    OK(MPI_Sendrecv(&mine, 1, MPI_INT, peer, 9, &plain, 1, MPI_INT, MPI_ANY_SOURCE, MPI_ANY_TAG, MPI_COMM_WORLD, MPI_STATUS_IGNORE));
    CHECK(plain == 7);
    for (int i = MANY - 1; i >= 0; i--) {
        OK(MPI_Start(&out[i]));
        OK(MPI_Pready(0, out[i]));
    }
    for (int i = 1; i <= MANY; i++)
        OK(MPI_Start(&in[i % MANY]));
    OK(MPI_Waitall(MANY, in, MPI_STATUSES_IGNORE));
    OK(MPI_Waitall(MANY, out, MPI_STATUSES_IGNORE));
    for (int i = 0; i < MANY; i++) {
        CHECK(got[i] == 100 * peer + i);
        OK(MPI_Request_free(&out[i]));
        OK(MPI_Request_free(&in[i]));
    }
}

/* Scattered data on either side, with partitions that do not meet. */
static void scattered(void)
{
    enum { COUNT = 60 };
    int next = (rank + 1) % size, before = (rank + size - 1) % size;
    MPI_Datatype pairs;
    OK(MPI_Type_vector(2, 1, 2, MPI_INT, &pairs));
    OK(MPI_Type_commit(&pairs));
    int out[3 * COUNT], in[3 * COUNT];
    for (int cut = 1; cut <= 12; cut++) {
        if (COUNT % cut)
            continue;
        MPI_Request requests[2];
        for (int i = 0; i < 3 * COUNT; i++) {
            out[i] = 1000 * rank + i;
            in[i] = -1;
        }
        OK(MPI_Psend_init_c(out, cut, COUNT / cut, pairs, next, 2, MPI_COMM_WORLD, MPI_INFO_NULL, &requests[0]));
        OK(MPI_Precv_init_c(in, 5, COUNT / 5, pairs, before, 2, MPI_COMM_WORLD, MPI_INFO_NULL, &requests[1]));
        MPI_Datatype kept = pairs;
        if (cut == 12)
            OK(MPI_Type_free(&kept));
        OK(MPI_Startall(2, requests));
        all_ready(requests[0], cut);
        OK(MPI_Waitall(2, requests, MPI_STATUSES_IGNORE));
        for (int i = 0; i < 3 * COUNT; i++)
            CHECK(in[i] == (i % 3 == 1 ? -1 : 1000 * before + i));
        OK(MPI_Request_free(&requests[0]));
        OK(MPI_Request_free(&requests[1]));
    }
}

/* The receives are posted though the program waits for something else: the sender may finish first. */
static void progress(void)
{
    enum { BYTES = 1 << 20 };
    if (size < 2 || rank > 1)
        return;
    unsigned char *data = memory_of(2 * BYTES);
    MPI_Request request;
    if (rank == 0) {
        OK(MPI_Precv_init(data, 2, BYTES, MPI_BYTE, 1, 6, MPI_COMM_WORLD, MPI_INFO_NULL, &request));
        OK(MPI_Start(&request));
        OK(MPI_Recv(NULL, 0, MPI_BYTE, 1, 6, MPI_COMM_WORLD, MPI_STATUS_IGNORE));
        OK(MPI_Wait(&request, MPI_STATUS_IGNORE));
        CHECK(holds(data, 2 * BYTES, 6));
    } else {
        nap_ms(30);
        fill(data, 2 * BYTES, 6);
        OK(MPI_Psend_init(data, 2, BYTES, MPI_BYTE, 0, 6, MPI_COMM_WORLD, MPI_INFO_NULL, &request));
        OK(MPI_Start(&request));
        OK(MPI_Pready_range(0, 1, request));
        OK(MPI_Wait(&request, MPI_STATUS_IGNORE));
        OK(MPI_Send(NULL, 0, MPI_BYTE, 0, 6, MPI_COMM_WORLD));
    }
    OK(MPI_Request_free(&request));
    free(data);
}

static void edges(void)
{
    int data[4] = {1, 2, 3, 4}, in[4] = {0}, flag;
    MPI_Request out, receive, nothing = MPI_REQUEST_NULL;
    MPI_Status status;
    OK(MPI_Parrived(nothing, 0, &flag));
    CHECK(flag);
    FAILS(MPI_ERR_ARG, MPI_Psend_init(data, 0, 1, MPI_INT, 0, 0, MPI_COMM_SELF, MPI_INFO_NULL, &out));
    FAILS(MPI_ERR_ARG, MPI_Precv_init(data, -1, 1, MPI_INT, 0, 0, MPI_COMM_SELF, MPI_INFO_NULL, &out));
    FAILS(MPI_ERR_COUNT, MPI_Psend_init(data, 1, -1, MPI_INT, 0, 0, MPI_COMM_SELF, MPI_INFO_NULL, &out));
    FAILS(MPI_ERR_RANK, MPI_Psend_init(data, 1, 1, MPI_INT, 1, 0, MPI_COMM_SELF, MPI_INFO_NULL, &out));
    FAILS(MPI_ERR_TAG, MPI_Psend_init(data, 1, 1, MPI_INT, 0, -5, MPI_COMM_SELF, MPI_INFO_NULL, &out));
    FAILS(MPI_ERR_RANK, MPI_Precv_init(data, 1, 1, MPI_INT, MPI_ANY_SOURCE, 0, MPI_COMM_SELF, MPI_INFO_NULL, &out));
    FAILS(MPI_ERR_TAG, MPI_Precv_init(data, 1, 1, MPI_INT, 0, MPI_ANY_TAG, MPI_COMM_SELF, MPI_INFO_NULL, &out));

    /* The largest tag, and nobody at all. */
    OK(MPI_Psend_init(data, 2, 2, MPI_INT, 0, INT32_MAX, MPI_COMM_SELF, MPI_INFO_NULL, &out));
    OK(MPI_Precv_init(in, 4, 1, MPI_INT, 0, INT32_MAX, MPI_COMM_SELF, MPI_INFO_NULL, &receive));
    FAILS(MPI_ERR_REQUEST, MPI_Pready(0, out));
    OK(MPI_Start(&receive));
    OK(MPI_Start(&out));
    FAILS(MPI_ERR_REQUEST, MPI_Start(&out));
    FAILS(MPI_ERR_REQUEST, MPI_Pready(0, receive));
    FAILS(MPI_ERR_REQUEST, MPI_Parrived(out, 0, &flag));
    FAILS(MPI_ERR_ARG, MPI_Pready(2, out));
    FAILS(MPI_ERR_ARG, MPI_Pready(-1, out));
    FAILS(MPI_ERR_ARG, MPI_Parrived(receive, 4, &flag));
    FAILS(MPI_ERR_ARG, MPI_Pready_range(1, 0, out));
    int twice[2] = {1, 1};
    FAILS(MPI_ERR_ARG, MPI_Pready_list(2, twice, out));
    FAILS(MPI_ERR_ARG, MPI_Pready_range(0, 2, out));
    OK(MPI_Parrived(receive, 2, &flag));
    CHECK(!flag);
    OK(MPI_Pready_list(0, NULL, out));
    OK(MPI_Pready(1, out));
    FAILS(MPI_ERR_ARG, MPI_Pready(1, out));
    OK(MPI_Parrived(receive, 2, &flag));
    CHECK(flag && in[2] == 3);
    OK(MPI_Parrived(receive, 1, &flag));
    CHECK(!flag);
    OK(MPI_Request_get_status(out, &flag, MPI_STATUS_IGNORE));
    CHECK(!flag);
    FAILS(MPI_ERR_REQUEST, MPI_Cancel(&out));
    OK(MPI_Pready(0, out));
    for (int i = 0; i < 2; i++) {
        OK(MPI_Request_get_status(out, &flag, MPI_STATUS_IGNORE));
        CHECK(flag);
        OK(MPI_Request_get_status(receive, &flag, &status));
        CHECK(flag && status.MPI_TAG == INT32_MAX);
    }
    int index;
    OK(MPI_Waitany(1, &receive, &index, &status));
    CHECK(index == 0 && memcmp(in, data, sizeof(in)) == 0 && receive != MPI_REQUEST_NULL);
    OK(MPI_Wait(&out, MPI_STATUS_IGNORE));
    OK(MPI_Wait(&out, &status));
    CHECK(status.MPI_SOURCE == MPI_ANY_SOURCE);
    OK(MPI_Request_free(&out));
    OK(MPI_Request_free(&receive));

    OK(MPI_Psend_init(data, 2, 2, MPI_INT, MPI_PROC_NULL, 0, MPI_COMM_SELF, MPI_INFO_NULL, &out));
    OK(MPI_Precv_init(in, 4, 1, MPI_INT, MPI_PROC_NULL, 0, MPI_COMM_SELF, MPI_INFO_NULL, &receive));
    OK(MPI_Start(&receive));
    OK(MPI_Start(&out));
    OK(MPI_Pready(1, out));
    OK(MPI_Pready(0, out));
    OK(MPI_Parrived(receive, 3, &flag));
    CHECK(flag);
    OK(MPI_Wait(&receive, &status));
    CHECK(status.MPI_SOURCE == MPI_PROC_NULL);
    OK(MPI_Wait(&out, &status));
    OK(MPI_Request_free(&out));
    OK(MPI_Request_free(&receive));

    /* Partitions without bytes; the communicator is freed before the requests. */
    MPI_Comm comm;
    OK(MPI_Comm_dup(MPI_COMM_SELF, &comm));
    OK(MPI_Psend_init(NULL, 3, 0, MPI_INT, 0, 1, comm, MPI_INFO_NULL, &out));
    OK(MPI_Precv_init(NULL, 2, 0, MPI_INT, 0, 1, comm, MPI_INFO_NULL, &receive));
    OK(MPI_Comm_free(&comm));
    OK(MPI_Start(&receive));
    OK(MPI_Start(&out));
    OK(MPI_Pready_range(0, 2, out));
    OK(MPI_Wait(&out, MPI_STATUS_IGNORE));
    OK(MPI_Wait(&receive, MPI_STATUS_IGNORE));
    OK(MPI_Request_free(&out));
    OK(MPI_Request_free(&receive));

    /* Longer than the receiver's buffer. */
    OK(MPI_Psend_init(data, 2, 2, MPI_INT, 0, 3, MPI_COMM_SELF, MPI_INFO_NULL, &out));
    OK(MPI_Precv_init(in, 1, 3, MPI_INT, 0, 3, MPI_COMM_SELF, MPI_INFO_NULL, &receive));
    OK(MPI_Start(&out));
    OK(MPI_Pready_range(0, 1, out));
    OK(MPI_Start(&receive));
    FAILS(MPI_ERR_TRUNCATE, MPI_Wait(&receive, MPI_STATUS_IGNORE));
    OK(MPI_Wait(&out, MPI_STATUS_IGNORE));
    OK(MPI_Request_free(&out));
    OK(MPI_Request_free(&receive));

    /* One that nobody matched. */
    OK(MPI_Precv_init(in, 1, 3, MPI_INT, 0, 77, MPI_COMM_SELF, MPI_INFO_NULL, &receive));
    OK(MPI_Request_free(&receive));
}

int main(int argc, char **argv)
{
    begin(&argc, &argv);
    state += (uint64_t)rank;
    edges();
    for (int late = 0; late < 2; late++) {
        exchange(720, 1, 1, MPI_COMM_WORLD, 0, late);
        exchange(720, 6, 6, MPI_COMM_WORLD, 0, late);
        exchange(720, 8, 90, MPI_COMM_WORLD, 1, late);
        exchange(720, 90, 8, MPI_COMM_WORLD, 2, late);
        exchange(720, 9, 16, MPI_COMM_WORLD, INT32_MAX, late);
        exchange(720 * 1000, 4, 18, MPI_COMM_WORLD, 3, late);
        exchange(720 * 4096, 5, 3, MPI_COMM_WORLD, 4, late);
        exchange(5000, 5000, 1000, MPI_COMM_WORLD, 4, late);
    }
    early(100);
    early(300000);
    order();
    scattered();
    progress();
    return end();
}
