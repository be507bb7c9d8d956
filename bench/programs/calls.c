/* Calls that programs make in loops, each by itself: 2 ranks, short messages, what a call or an exchange costs on rank 0.
 *
 * A row is a function that runs its operation `count` times and returns the seconds that they took; what it has to prepare is not
 * counted. calls BUDGET_MS [ROW...] prints a JSON line a row; with ROW, only of those whose names have one of the words.
 */
#include "measure.h"

enum { CROWD = 10000, MANY = 1000, WINDOW = 64 };

#define WORLD MPI_COMM_WORLD
#define IGNORED MPI_STATUS_IGNORE

static int rank, peer;
static char out[4096], in[4096];
static MPI_Request requests[CROWD];
static int indices[MANY];
static int keyval;

static double begin(void)
{
    MPI_Barrier(WORLD);
    return MPI_Wtime();
}

static void send8(int tag) { MPI_Send(out, 8, MPI_BYTE, peer, tag, WORLD); }
static void receive8(int tag) { MPI_Recv(in, 8, MPI_BYTE, peer, tag, WORLD, IGNORED); }

/* ---- a side that sends, a side that receives */

/* Rank 0 receives the messages of a crowd that lie there already. `step`: 1 from the oldest on, -1 from the newest on, else in leaps. */
static double unexpected(int count, int step)
{
    double seconds = 0;
    for (int i = 0; i < count; i++) {
        MPI_Barrier(WORLD);
        if (rank == 1) {
            for (int tag = 0; tag < CROWD; tag++)
                send8(tag);
            send8(CROWD);
            continue;
        }
        receive8(CROWD);
        double start = MPI_Wtime();
        for (int each = 0, tag = step < 0 ? CROWD - 1 : 0; each < CROWD; each++, tag = (tag + step) % CROWD)
            receive8(tag);
        seconds += MPI_Wtime() - start;
    }
    return seconds;
}
static double unexpected_oldest(int count) { return unexpected(count, 1); }
static double unexpected_newest(int count) { return unexpected(count, -1); }
static double unexpected_any(int count) { return unexpected(count, 4567 | 1); }

/* One message goes to and fro, past a crowd of others that nobody asks for. */
static double past_unexpected(int count)
{
    MPI_Barrier(WORLD);
    for (int tag = 0; tag < CROWD; tag++)
        send8(tag);
    double start = begin();
    for (int i = 0; i < count; i++) {
        if (rank == 0)
            send8(CROWD);
        receive8(CROWD);
        if (rank == 1)
            send8(CROWD);
    }
    double seconds = MPI_Wtime() - start;
    for (int tag = 0; tag < CROWD; tag++)
        receive8(tag);
    return seconds;
}

static double posted(int count, int step)
{
    double seconds = 0;
    for (int i = 0; i < count; i++) {
        if (rank == 0)
            for (int tag = 0; tag < CROWD; tag++)
                MPI_Irecv(in, 8, MPI_BYTE, peer, tag, WORLD, &requests[tag]);
        double start = begin();
        if (rank == 1)
            for (int each = 0, tag = step < 0 ? CROWD - 1 : 0; each < CROWD; each++, tag += step)
                send8(tag);
        else
            MPI_Waitall(CROWD, requests, MPI_STATUSES_IGNORE);
        seconds += MPI_Wtime() - start;
    }
    return seconds;
}
static double posted_oldest(int count) { return posted(count, 1); }
static double posted_newest(int count) { return posted(count, -1); }

/* ---- to and fro: half of it is counted */

#define TO_AND_FRO(name, send, receive)      \
    static double name(int count)            \
    {                                        \
        double start = begin();              \
        for (int i = 0; i < count; i++) {    \
            if (rank == 0) {                 \
                send;                        \
                receive;                     \
            } else {                         \
                receive;                     \
                send;                        \
            }                                \
        }                                    \
        return (MPI_Wtime() - start) / 2;    \
    }

static void probe(void)
{
    MPI_Status status;
    MPI_Probe(peer, 1, WORLD, &status);
    receive8(1);
}
static void iprobe(void)
{
    int there = 0;
    MPI_Status status;
    while (!there)
        MPI_Iprobe(peer, 1, WORLD, &there, &status);
    receive8(1);
}
static void iprobe_any(void)
{
    int there = 0;
    MPI_Status status;
    while (!there)
        MPI_Iprobe(MPI_ANY_SOURCE, MPI_ANY_TAG, WORLD, &there, &status);
    MPI_Recv(in, 8, MPI_BYTE, status.MPI_SOURCE, status.MPI_TAG, WORLD, IGNORED);
}
static void mprobe(void)
{
    MPI_Message message;
    MPI_Mprobe(peer, 1, WORLD, &message, IGNORED);
    MPI_Mrecv(in, 8, MPI_BYTE, &message, IGNORED);
}
static void improbe(void)
{
    int there = 0;
    MPI_Message message;
    while (!there)
        MPI_Improbe(peer, 1, WORLD, &there, &message, IGNORED);
    MPI_Mrecv(in, 8, MPI_BYTE, &message, IGNORED);
}
static void isend_wait(void)
{
    MPI_Isend(out, 8, MPI_BYTE, peer, 1, WORLD, requests);
    MPI_Wait(requests, IGNORED);
}
static void irecv_wait(void)
{
    MPI_Irecv(in, 8, MPI_BYTE, peer, 1, WORLD, requests);
    MPI_Wait(requests, IGNORED);
}
static void irecv_test(void)
{
    int done = 0;
    MPI_Irecv(in, 8, MPI_BYTE, peer, 1, WORLD, requests);
    while (!done)
        MPI_Test(requests, &done, IGNORED);
}
static void issend_wait(void)
{
    MPI_Issend(out, 8, MPI_BYTE, peer, 1, WORLD, requests);
    MPI_Wait(requests, IGNORED);
}
static void receive_status(void)
{
    MPI_Status status;
    int got;
    MPI_Recv(in, 8, MPI_BYTE, MPI_ANY_SOURCE, MPI_ANY_TAG, WORLD, &status);
    MPI_Get_count(&status, MPI_BYTE, &got);
}
TO_AND_FRO(ping_pong, send8(1), receive8(1))
TO_AND_FRO(ping_pong_any, send8(1), receive_status())
TO_AND_FRO(probe_receive, send8(1), probe())
TO_AND_FRO(iprobe_receive, send8(1), iprobe())
TO_AND_FRO(iprobe_any_receive, send8(1), iprobe_any())
TO_AND_FRO(mprobe_mrecv, send8(1), mprobe())
TO_AND_FRO(improbe_mrecv, send8(1), improbe())
TO_AND_FRO(ssend, MPI_Ssend(out, 8, MPI_BYTE, peer, 1, WORLD), receive8(1))
TO_AND_FRO(issend, issend_wait(), receive8(1))
TO_AND_FRO(rsend, MPI_Rsend(out, 8, MPI_BYTE, peer, 1, WORLD), receive8(1))
TO_AND_FRO(bsend, MPI_Bsend(out, 8, MPI_BYTE, peer, 1, WORLD), receive8(1))
TO_AND_FRO(isend_irecv_wait, isend_wait(), irecv_wait())
TO_AND_FRO(isend_irecv_test, isend_wait(), irecv_test())

/* ---- both sides do the same */

#define EACH(name, before, operation, after) \
    static double name(int count)            \
    {                                        \
        before;                              \
        double start = begin();              \
        for (int i = 0; i < count; i++) {    \
            operation;                       \
        }                                    \
        double seconds = MPI_Wtime() - start; \
        after;                               \
        return seconds;                      \
    }

static void exchange_all(int window)
{
    for (int i = 0; i < window; i++)
        MPI_Irecv(in, 8, MPI_BYTE, peer, i, WORLD, &requests[i]);
    for (int i = 0; i < window; i++)
        MPI_Isend(out, 8, MPI_BYTE, peer, i, WORLD, &requests[window + i]);
    MPI_Waitall(2 * window, requests, MPI_STATUSES_IGNORE);
}
EACH(sendrecv, , MPI_Sendrecv(out, 8, MPI_BYTE, peer, 1, in, 8, MPI_BYTE, peer, 1, WORLD, IGNORED), )
EACH(sendrecv_replace, , MPI_Sendrecv_replace(out, 8, MPI_BYTE, peer, 1, peer, 1, WORLD, IGNORED), )
EACH(sendrecv_null, , MPI_Sendrecv(out, 8, MPI_BYTE, MPI_PROC_NULL, 1, in, 8, MPI_BYTE, MPI_PROC_NULL, 1, WORLD, IGNORED), )
EACH(exchange_1, , exchange_all(1), )
EACH(exchange_64, , exchange_all(WINDOW), )
EACH(sendrecv_self, , MPI_Sendrecv(out, 8, MPI_BYTE, 0, 1, in, 8, MPI_BYTE, 0, 1, MPI_COMM_SELF, IGNORED), )

static MPI_Request pair[2];
static void make_pair(void)
{
    MPI_Recv_init(in, 8, MPI_BYTE, peer, 1, WORLD, &pair[0]);
    MPI_Send_init(out, 8, MPI_BYTE, peer, 1, WORLD, &pair[1]);
}
static void free_pair(void)
{
    MPI_Request_free(&pair[0]);
    MPI_Request_free(&pair[1]);
}
static void start_wait(void)
{
    MPI_Start(&pair[0]);
    MPI_Start(&pair[1]);
    MPI_Wait(&pair[1], IGNORED);
    MPI_Wait(&pair[0], IGNORED);
}
EACH(persistent_startall, make_pair(), (MPI_Startall(2, pair), MPI_Waitall(2, pair, MPI_STATUSES_IGNORE)), free_pair())
EACH(persistent_start_wait, make_pair(), start_wait(), free_pair())
EACH(persistent_init_free, , (make_pair(), free_pair()), )

/* Many receives are posted, of which none, or the last, is complete. */
static void post_many(void)
{
    for (int i = 0; i < MANY; i++)
        MPI_Irecv(in, 8, MPI_BYTE, peer, i, WORLD, &requests[i]);
}
static void fill_many(void)
{
    for (int i = 0; i < MANY; i++)
        send8(i);
    MPI_Waitall(MANY, requests, MPI_STATUSES_IGNORE);
}
static int flag, index_of, done_count;
EACH(test_none, post_many(), MPI_Test(&requests[0], &flag, IGNORED), fill_many())
EACH(testall_none, post_many(), MPI_Testall(MANY, requests, &flag, MPI_STATUSES_IGNORE), fill_many())
EACH(testany_none, post_many(), MPI_Testany(MANY, requests, &index_of, &flag, IGNORED), fill_many())
EACH(testsome_none, post_many(), MPI_Testsome(MANY, requests, &done_count, indices, MPI_STATUSES_IGNORE), fill_many())

/* Each of many messages is waited for with all that are missing: the cost of a message that has come. */
static double wait_many(int count, void (*wait)(void))
{
    double seconds = 0;
    for (int i = 0; i < count; i++) {
        post_many();
        MPI_Barrier(WORLD);
        for (int tag = 0; tag < MANY; tag++)
            send8(tag);
        MPI_Barrier(WORLD);
        double start = MPI_Wtime();
        wait();
        seconds += MPI_Wtime() - start;
    }
    return seconds;
}
static void wait_any(void)
{
    for (int left = MANY; left > 0; left--)
        MPI_Waitany(MANY, requests, &index_of, IGNORED);
}
static void wait_some(void)
{
    for (int left = MANY; left > 0; left -= done_count)
        MPI_Waitsome(MANY, requests, &done_count, indices, MPI_STATUSES_IGNORE);
}
static void wait_all(void) { MPI_Waitall(MANY, requests, MPI_STATUSES_IGNORE); }
static double waitany_many(int count) { return wait_many(count, wait_any); }
static double waitsome_many(int count) { return wait_many(count, wait_some); }
static double waitall_many(int count) { return wait_many(count, wait_all); }

/* One message goes to and fro, and is waited for with many that do not come. */
static double waitany_one(int count)
{
    post_many();
    double start = begin();
    for (int i = 0; i < count; i++) {
        if (rank == 0)
            send8(MANY - 1);
        MPI_Waitany(MANY, requests, &index_of, IGNORED);
        MPI_Irecv(in, 8, MPI_BYTE, peer, MANY - 1, WORLD, &requests[MANY - 1]);
        if (rank == 1)
            send8(MANY - 1);
    }
    double seconds = (MPI_Wtime() - start) / 2;
    fill_many();
    return seconds;
}

/* ---- collectives */

static long one = 1, sum, pieces[8], all[8];
static int counts[2] = {1, 1};
EACH(barrier, , MPI_Barrier(WORLD), )
EACH(bcast, , MPI_Bcast(pieces, 1, MPI_LONG, 0, WORLD), )
EACH(reduce, , MPI_Reduce(&one, &sum, 1, MPI_LONG, MPI_SUM, 0, WORLD), )
EACH(allreduce, , MPI_Allreduce(&one, &sum, 1, MPI_LONG, MPI_SUM, WORLD), )
EACH(allgather, , MPI_Allgather(&one, 1, MPI_LONG, all, 1, MPI_LONG, WORLD), )
EACH(alltoall, , MPI_Alltoall(pieces, 1, MPI_LONG, all, 1, MPI_LONG, WORLD), )
EACH(gather, , MPI_Gather(&one, 1, MPI_LONG, all, 1, MPI_LONG, 0, WORLD), )
EACH(scatter, , MPI_Scatter(pieces, 1, MPI_LONG, all, 1, MPI_LONG, 0, WORLD), )
EACH(scan, , MPI_Scan(&one, &sum, 1, MPI_LONG, MPI_SUM, WORLD), )
EACH(reduce_scatter, , MPI_Reduce_scatter(pieces, all, counts, MPI_LONG, MPI_SUM, WORLD), )
EACH(reduce_local, , MPI_Reduce_local(pieces, all, 8, MPI_LONG, MPI_SUM), )
EACH(reduce_local_4k, , MPI_Reduce_local(in, out, 1024, MPI_INT, MPI_MAX), )
EACH(iallreduce, , (MPI_Iallreduce(&one, &sum, 1, MPI_LONG, MPI_SUM, WORLD, requests), MPI_Wait(requests, IGNORED)), )

/* ---- objects */

static MPI_Datatype type, types[3] = {MPI_INT, MPI_DOUBLE, MPI_CHAR};
static int lengths[3] = {1, 2, 3}, position;
static MPI_Aint places[3] = {0, 8, 24};
static MPI_Comm comm;
static MPI_Group world_group, group;
static MPI_Info info;
static MPI_Op op;
static char text[64];
static int members[1] = {0}, found;
static void *value;
static MPI_Status status_8;
static double now;

static void add(void *from, void *to, int *length, MPI_Datatype *of)
{
    (void)from, (void)to, (void)length, (void)of;
}
static void make_vector(void)
{
    MPI_Type_vector(16, 1, 4, MPI_DOUBLE, &type);
    MPI_Type_commit(&type);
}
EACH(type_vector, , (make_vector(), MPI_Type_free(&type)), )
EACH(type_contiguous, , (MPI_Type_contiguous(16, MPI_DOUBLE, &type), MPI_Type_commit(&type), MPI_Type_free(&type)), )
EACH(type_struct, , (MPI_Type_create_struct(3, lengths, places, types, &type), MPI_Type_commit(&type), MPI_Type_free(&type)), )
EACH(type_resized, , (MPI_Type_create_resized(MPI_DOUBLE, 0, 32, &type), MPI_Type_commit(&type), MPI_Type_free(&type)), )
EACH(type_size, make_vector(), MPI_Type_size(type, &found), MPI_Type_free(&type))
EACH(pack, make_vector(), (position = 0, MPI_Pack(in, 1, type, out, 4096, &position, WORLD)), MPI_Type_free(&type))
EACH(unpack, make_vector(), (position = 0, MPI_Unpack(out, 4096, &position, in, 1, type, WORLD)), MPI_Type_free(&type))
EACH(comm_dup, , (MPI_Comm_dup(WORLD, &comm), MPI_Comm_free(&comm)), )
EACH(comm_split, , (MPI_Comm_split(WORLD, 0, rank, &comm), MPI_Comm_free(&comm)), )
EACH(comm_group, , (MPI_Comm_group(WORLD, &group), MPI_Group_free(&group)), )
EACH(group_incl, , (MPI_Group_incl(world_group, 1, members, &group), MPI_Group_free(&group)), )
EACH(group_translate, , MPI_Group_translate_ranks(world_group, 1, members, world_group, &found), )
EACH(info_set_get, , (MPI_Info_create(&info), MPI_Info_set(info, "a_key", "a value"), MPI_Info_get(info, "a_key", 63, text, &flag), MPI_Info_free(&info)), )
EACH(op_create, , (MPI_Op_create(add, 1, &op), MPI_Op_free(&op)), )
EACH(attribute_get, , MPI_Comm_get_attr(WORLD, MPI_TAG_UB, &value, &flag), )
EACH(attribute_set_get, , (MPI_Comm_set_attr(WORLD, keyval, &one), MPI_Comm_get_attr(WORLD, keyval, &value, &flag)), )
EACH(comm_rank, , MPI_Comm_rank(WORLD, &found), )
EACH(comm_size, , MPI_Comm_size(WORLD, &found), )
EACH(get_count, , MPI_Get_count(&status_8, MPI_LONG, &found), )
EACH(wtime, , now = MPI_Wtime(), )
EACH(error_class, , MPI_Error_class(MPI_ERR_TRUNCATE, &found), )
EACH(initialized, , MPI_Initialized(&found), )
EACH(iprobe_none, , MPI_Iprobe(peer, 1, WORLD, &flag, IGNORED), )

static const struct row rows[] = {
    {"one of 10,000 unexpected, oldest first", unexpected_oldest, CROWD, 0},
    {"one of 10,000 unexpected, newest first", unexpected_newest, CROWD, 0},
    {"one of 10,000 unexpected, in leaps", unexpected_any, CROWD, 0},
    {"to and fro past 10,000 unexpected", past_unexpected, 2, 0},
    {"one of 10,000 posted, oldest first", posted_oldest, CROWD, 0},
    {"one of 10,000 posted, newest first", posted_newest, CROWD, 0},
    {"Send, Recv", ping_pong, 1, 0},
    {"Send, Recv of any, Get_count", ping_pong_any, 1, 0},
    {"Send, Probe, Recv", probe_receive, 1, 0},
    {"Send, Iprobe until there, Recv", iprobe_receive, 1, 0},
    {"Send, Iprobe of any until there, Recv", iprobe_any_receive, 1, 0},
    {"Send, Mprobe, Mrecv", mprobe_mrecv, 1, 0},
    {"Send, Improbe until there, Mrecv", improbe_mrecv, 1, 0},
    {"Iprobe, nothing there", iprobe_none, 1, 0},
    {"Ssend, Recv", ssend, 1, 0},
    {"Issend, Wait, Recv", issend, 1, 0},
    {"Rsend, Recv", rsend, 1, 0},
    {"Bsend, Recv", bsend, 1, 0},
    {"Isend, Irecv, Wait", isend_irecv_wait, 1, 0},
    {"Isend, Irecv, Test until done", isend_irecv_test, 1, 0},
    {"Sendrecv", sendrecv, 1, 0},
    {"Sendrecv_replace", sendrecv_replace, 1, 0},
    {"Sendrecv with nobody", sendrecv_null, 1, 0},
    {"Sendrecv with oneself", sendrecv_self, 1, 0},
    {"Irecv, Isend, Waitall", exchange_1, 1, 0},
    {"Irecv, Isend, Waitall in windows of 64", exchange_64, WINDOW, 0},
    {"persistent Startall, Waitall", persistent_startall, 1, 0},
    {"persistent Start, Wait", persistent_start_wait, 1, 0},
    {"Send_init, Recv_init, Request_free", persistent_init_free, 1, 0},
    {"Test, not done", test_none, 1, 0},
    {"Testall of 1,000, none done", testall_none, 1, 0},
    {"Testany of 1,000, none done", testany_none, 1, 0},
    {"Testsome of 1,000, none done", testsome_none, 1, 0},
    {"Waitany of 1,000, all done", waitany_many, MANY, 0},
    {"Waitsome of 1,000, all done", waitsome_many, MANY, 0},
    {"Waitall of 1,000, all done", waitall_many, MANY, 0},
    {"Waitany of 1,000, the last comes", waitany_one, 1, 0},
    {"Barrier", barrier, 1, 0},
    {"Bcast", bcast, 1, 0},
    {"Reduce", reduce, 1, 0},
    {"Allreduce", allreduce, 1, 0},
    {"Allgather", allgather, 1, 0},
    {"Alltoall", alltoall, 1, 0},
    {"Gather", gather, 1, 0},
    {"Scatter", scatter, 1, 0},
    {"Scan", scan, 1, 0},
    {"Reduce_scatter", reduce_scatter, 1, 0},
    {"Reduce_local of 8 longs", reduce_local, 1, 0},
    {"Reduce_local of 4 KiB", reduce_local_4k, 1, 0},
    {"Iallreduce, Wait", iallreduce, 1, 0},
    {"Type_vector, commit, free", type_vector, 1, 0},
    {"Type_contiguous, commit, free", type_contiguous, 1, 0},
    {"Type_create_struct, commit, free", type_struct, 1, 0},
    {"Type_create_resized, commit, free", type_resized, 1, 0},
    {"Type_size", type_size, 1, 0},
    {"Pack", pack, 1, 0},
    {"Unpack", unpack, 1, 0},
    {"Comm_dup, free", comm_dup, 1, 0},
    {"Comm_split, free", comm_split, 1, 0},
    {"Comm_group, free", comm_group, 1, 0},
    {"Group_incl, free", group_incl, 1, 0},
    {"Group_translate_ranks", group_translate, 1, 0},
    {"Info_create, set, get, free", info_set_get, 1, 0},
    {"Op_create, free", op_create, 1, 0},
    {"Comm_get_attr of MPI_TAG_UB", attribute_get, 1, 0},
    {"Comm_set_attr, Comm_get_attr", attribute_set_get, 1, 0},
    {"Comm_rank", comm_rank, 1, 0},
    {"Comm_size", comm_size, 1, 0},
    {"Get_count", get_count, 1, 0},
    {"Wtime", wtime, 1, 0},
    {"Error_class", error_class, 1, 0},
    {"Initialized", initialized, 1, 0},
};

int main(int argc, char **argv)
{
    MPI_Init(&argc, &argv);
    need_two_ranks();
    rank = world_rank();
    peer = 1 - rank;
    double budget_s = budget_argument(argc, argv);
    size_t room = 1 << 20;
    char *buffer = buffer_of(room);
    MPI_Buffer_attach(buffer, (int)room);
    MPI_Comm_group(WORLD, &world_group);
    MPI_Comm_create_keyval(MPI_COMM_NULL_COPY_FN, MPI_COMM_NULL_DELETE_FN, &keyval, NULL);
    MPI_Sendrecv(out, 8, MPI_BYTE, peer, 1, in, 8, MPI_BYTE, peer, 1, WORLD, &status_8);
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        if (wanted(rows[i].name, argc, argv))
            measure_row(rows[i].name, &rows[i], budget_s);
    MPI_Comm_free_keyval(&keyval);
    MPI_Group_free(&world_group);
    MPI_Buffer_detach(&buffer, &found);
    MPI_Finalize();
    return 0;
}
