/* MPI_THREAD_MULTIPLE: each thread does something else of everything, on a communicator of its own and on a shared one.
 * ranks: 1 2 4
 * cflags: -pthread
 * timeout: 180
 */
#include "world.h"

#include <pthread.h>
#include <stdatomic.h>

enum { ROUNDS = 2000 };

static int next, before;
static MPI_Comm own[8];
static atomic_int done;

/* Collectives, blocking and several nonblocking at once. */
static void collectives(int mine, MPI_Comm comm)
{
    for (int round = 0; round < ROUNDS; round++) {
        long value = rank + round, sum = 0, most = 0, all[64], expected = (long)size * (size - 1) / 2 + (long)size * round;
        MPI_Request requests[3];
        OK(MPI_Allreduce(&value, &sum, 1, MPI_LONG, MPI_SUM, comm));
        CHECK(sum == expected);
        OK(MPI_Iallgather(&value, 1, MPI_LONG, all, 1, MPI_LONG, comm, &requests[0]));
        OK(MPI_Iallreduce(&value, &most, 1, MPI_LONG, MPI_MAX, comm, &requests[1]));
        OK(MPI_Ibarrier(comm, &requests[2]));
        OK(MPI_Waitall(3, requests, MPI_STATUSES_IGNORE));
        CHECK(most == size - 1 + round && all[next] == next + round);
        OK(MPI_Bcast(&value, 1, MPI_LONG, round % size, comm));
        CHECK(value == round % size + round);
    }
    (void)mine;
}

/* Communicators, groups, infos and attributes come and go. */
static void objects(int mine, MPI_Comm comm)
{
    for (int round = 0; round < ROUNDS / 4; round++) {
        MPI_Comm copy, half;
        MPI_Group group, part;
        MPI_Info info;
        int key, flag, ranks[1] = {0}, among;
        void *value;
        OK(MPI_Comm_dup(comm, &copy));
        OK(MPI_Comm_split(copy, rank % 2, -rank, &half));
        OK(MPI_Comm_size(half, &among));
        CHECK(among == (size + 1 - rank % 2) / 2);
        OK(MPI_Comm_group(copy, &group));
        OK(MPI_Group_incl(group, 1, ranks, &part));
        OK(MPI_Group_free(&part));
        OK(MPI_Group_free(&group));
        OK(MPI_Comm_create_keyval(MPI_COMM_NULL_COPY_FN, MPI_COMM_NULL_DELETE_FN, &key, NULL));
        OK(MPI_Comm_set_attr(copy, key, &mine));
        OK(MPI_Comm_get_attr(copy, key, &value, &flag));
        CHECK(flag && value == &mine);
        OK(MPI_Comm_free_keyval(&key));
        OK(MPI_Info_create(&info));
        OK(MPI_Info_set(info, "a", "b"));
        OK(MPI_Info_free(&info));
        OK(MPI_Barrier(half));
        OK(MPI_Comm_free(&half));
        OK(MPI_Comm_free(&copy));
    }
}

/* Wildcards, probes and cancelled receives on a communicator of one's own. */
static void probes(int mine, MPI_Comm comm)
{
    for (int round = 0; round < ROUNDS; round++) {
        int out[3] = {rank, round, mine}, in[3], count, flag;
        MPI_Request send, never;
        MPI_Status status;
        MPI_Message message;
        OK(MPI_Irecv(in, 3, MPI_INT, MPI_ANY_SOURCE, 5000, comm, &never));
        OK(MPI_Issend(out, 1 + round % 3, MPI_INT, next, round, comm, &send));
        if (round % 2) {
            OK(MPI_Mprobe(MPI_ANY_SOURCE, MPI_ANY_TAG, comm, &message, &status));
        } else {
            for (flag = 0; !flag;)
                OK(MPI_Improbe(before, MPI_ANY_TAG, comm, &flag, &message, &status));
        }
        OK(MPI_Get_count(&status, MPI_INT, &count));
        CHECK(count == 1 + round % 3 && status.MPI_TAG == round && status.MPI_SOURCE == before);
        OK(MPI_Mrecv(in, count, MPI_INT, &message, &status));
        CHECK(in[0] == before && (count < 2 || in[1] == round));
        OK(MPI_Wait(&send, MPI_STATUS_IGNORE));
        OK(MPI_Cancel(&never));
        OK(MPI_Wait(&never, &status));
        OK(MPI_Test_cancelled(&status, &flag));
        CHECK(flag);
    }
}

/* Persistent requests on the shared communicator, completed in every way. */
static void persistent(int mine, MPI_Comm comm)
{
    enum { MANY = 6, LARGE = 40000 };
    static unsigned char data[MANY][LARGE], room[MANY][LARGE];
    MPI_Request requests[2 * MANY];
    (void)comm;
    for (int i = 0; i < MANY; i++) {
        int bytes = i % 2 ? LARGE : 30;
        OK(MPI_Recv_init(room[i], bytes, MPI_BYTE, before, 100 * mine + i, MPI_COMM_WORLD, &requests[i]));
        OK(MPI_Send_init(data[i], bytes, MPI_BYTE, next, 100 * mine + i, MPI_COMM_WORLD, &requests[MANY + i]));
    }
    for (int round = 0; round < ROUNDS / 2; round++) {
        for (int i = 0; i < MANY; i++)
            fill(data[i], 30, (unsigned)(round + rank + i));
        OK(MPI_Startall(2 * MANY, requests));
        int left = 2 * MANY, some, places[2 * MANY], place, flag;
        while (left > 0) {
            MPI_Status statuses[2 * MANY];
            switch (round % 3) {
            case 0:
                OK(MPI_Waitsome(2 * MANY, requests, &some, places, statuses));
                left -= some;
                break;
            case 1:
                OK(MPI_Testany(2 * MANY, requests, &place, &flag, statuses));
                left -= flag;
                break;
            default:
                OK(MPI_Waitany(2 * MANY, requests, &place, statuses));
                left--;
            }
        }
        for (int i = 0; i < MANY; i++)
            CHECK(holds(room[i], 30, (unsigned)(round + before + i)));
    }
    for (int i = 0; i < 2 * MANY; i++)
        OK(MPI_Request_free(&requests[i]));
}

/* Messages to this process itself, which another thread of it receives. */
static void own_sender(int mine, MPI_Comm comm)
{
    (void)mine;
    (void)comm;
    for (int round = 0; round < 4 * ROUNDS; round++)
        OK(MPI_Send(&round, 1, MPI_INT, 0, 4000, MPI_COMM_SELF));
}

static void own_receiver(int mine, MPI_Comm comm)
{
    (void)mine;
    (void)comm;
    for (int round = 0; round < 4 * ROUNDS; round++) {
        int got = -1;
        OK(MPI_Recv(&got, 1, MPI_INT, MPI_ANY_SOURCE, 4000, MPI_COMM_SELF, MPI_STATUS_IGNORE));
        CHECK(got == round);
    }
}

/* A tool looks on: levels, counters and parameters. */
static void tool(int mine, MPI_Comm comm)
{
    int provided, index, count;
    MPI_T_pvar_session session;
    MPI_T_pvar_handle handle;
    unsigned long long last = 0, now;
    (void)mine;
    OK(MPI_T_init_thread(MPI_THREAD_MULTIPLE, &provided));
    CHECK(provided == MPI_THREAD_MULTIPLE);
    OK(MPI_T_pvar_session_create(&session));
    OK(MPI_T_pvar_get_index("messages_received", MPI_T_PVAR_CLASS_COUNTER, &index));
    OK(MPI_T_pvar_handle_alloc(session, index, NULL, &handle, &count));
    OK(MPI_T_pvar_start(session, handle));
    while (atomic_load(&done) < 6) {
        OK(MPI_T_pvar_read(session, handle, &now));
        CHECK(now >= last);
        last = now;
        MPI_T_pvar_handle level;
        int level_index;
        OK(MPI_T_pvar_get_index("communicator_posted_receives", MPI_T_PVAR_CLASS_LEVEL, &level_index));
        OK(MPI_T_pvar_handle_alloc(session, level_index, &comm, &level, &count));
        unsigned long long posted;
        OK(MPI_T_pvar_read(session, level, &posted));
        CHECK(posted == 0);
        OK(MPI_T_pvar_handle_free(session, &level));
        nap_ms(1);
    }
    OK(MPI_T_pvar_session_free(&session));
    OK(MPI_T_finalize());
}

static void (*const tasks[])(int, MPI_Comm) = {collectives, objects, probes, persistent, own_sender, own_receiver, tool};
enum { THREADS = sizeof(tasks) / sizeof(tasks[0]) };

static void *work(void *argument)
{
    int mine = (int)(intptr_t)argument;
    tasks[mine](mine, own[mine]);
    atomic_fetch_add(&done, 1);
    return NULL;
}

int main(int argc, char **argv)
{
    begin_threaded(&argc, &argv, MPI_THREAD_MULTIPLE);
    next = (rank + 1) % size;
    before = (rank + size - 1) % size;
    pthread_t threads[THREADS];
    for (int i = 0; i < THREADS; i++)
        OK(MPI_Comm_dup(MPI_COMM_WORLD, &own[i]));
    for (int i = 0; i < THREADS; i++)
        CHECK(pthread_create(&threads[i], NULL, work, (void *)(intptr_t)i) == 0);
    for (int i = 0; i < THREADS; i++)
        CHECK(pthread_join(threads[i], NULL) == 0);
    for (int i = 0; i < THREADS; i++)
        OK(MPI_Comm_free(&own[i]));
    return end();
}
