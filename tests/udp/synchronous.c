/* Short synchronous sends go with their header in datagrams, and complete when they are matched: posted before and after, probed, cancelled,
 * cut off, empty, in pieces, and past what the receiver and the sender keep of such messages.
 * ranks: 2
 * env: WHIMBREL_FABRIC=udp
 */
#include "../programs-c/world.h"

#include <signal.h>
#include <unistd.h>

enum { TAG = 1, TAG_GO = 2, TAG_OTHER = 3, MANY = 2048, WINDOW = 64, CLASSES = 16, EAGER = 16 << 10, CROWD = 700, RACES = 300 };

static MPI_T_pvar_session session;
static MPI_T_pvar_handle pulled;
static int classes;

/* Messages that this rank has pulled from their sender. */
static unsigned long long messages_pulled(void)
{
    unsigned long long all[CLASSES] = {0}, sum = 0;
    OK(MPI_T_pvar_read(session, pulled, all));
    for (int i = 0; i < classes; i++)
        sum += all[i];
    return sum;
}

static void go(void)
{
    OK(MPI_Send(NULL, 0, MPI_BYTE, 1 - rank, TAG_GO, MPI_COMM_WORLD));
}

static void await_go(void)
{
    OK(MPI_Recv(NULL, 0, MPI_BYTE, 1 - rank, TAG_GO, MPI_COMM_WORLD, MPI_STATUS_IGNORE));
}

/* Windows of four bytes each, whose receives are posted before (as far as rank 1 is early), or after. */
static void windows(void)
{
    static int out[WINDOW], in[WINDOW];
    MPI_Request requests[WINDOW];
    for (int from = 0; from < MANY; from += WINDOW) {
        int late = from / WINDOW % 2;
        if (rank == 1 && late)
            await_go();
        for (int i = 0; i < WINDOW; i++) {
            out[i] = from + i;
            in[i] = -1;
            if (rank == 0)
                OK(MPI_Issend(&out[i], 1, MPI_INT, 1, TAG, MPI_COMM_WORLD, &requests[i]));
            else
                OK(MPI_Irecv(&in[i], 1, MPI_INT, 0, TAG, MPI_COMM_WORLD, &requests[i]));
        }
        if (rank == 0 && late)
            go();
        OK(MPI_Waitall(WINDOW, requests, MPI_STATUSES_IGNORE));
        for (int i = 0; rank == 1 && i < WINDOW; i++)
            CHECK(in[i] == from + i);
    }
}

/* No send completes before its message is received, though it has long come and been seen there. */
static void unmatched(void)
{
    MPI_Request request;
    MPI_Message message;
    MPI_Status status;
    int value = 5, flag;
    for (int matched = 0; matched < 2; matched++) {
        if (rank == 0) {
            OK(MPI_Issend(&value, 1, MPI_INT, 1, TAG, MPI_COMM_WORLD, &request));
            await_go();
            for (int i = 0; i < 200; i++) {
                OK(MPI_Test(&request, &flag, MPI_STATUS_IGNORE));
                CHECK(!flag);
            }
            go();
            OK(MPI_Wait(&request, MPI_STATUS_IGNORE));
        } else {
            value = 0;
            OK(MPI_Probe(0, TAG, MPI_COMM_WORLD, &status));
            go();
            await_go();
            if (matched) {
                OK(MPI_Mprobe(0, TAG, MPI_COMM_WORLD, &message, &status));
                OK(MPI_Mrecv(&value, 1, MPI_INT, &message, &status));
            } else {
                OK(MPI_Recv(&value, 1, MPI_INT, 0, TAG, MPI_COMM_WORLD, &status));
            }
            CHECK(value == 5 && status.MPI_SOURCE == 0);
        }
    }
}

static volatile sig_atomic_t told;

static void on_signal(int number)
{
    (void)number;
    told = 1;
}

/* A sender hears of the match though its receiver stays outside MPI from then on, until the sender has heard. */
static void computing(void)
{
    int value = 7, pid = (int)getpid(), tries = 0;
    signal(SIGUSR2, on_signal);
    for (int late = 0; late < 2; late++) {
        told = 0;
        if (rank == 0) {
            MPI_Request request;
            OK(MPI_Recv(&pid, 1, MPI_INT, 1, TAG_OTHER, MPI_COMM_WORLD, MPI_STATUS_IGNORE));
            OK(MPI_Issend(&value, 1, MPI_INT, 1, TAG, MPI_COMM_WORLD, &request));
            if (late)
                go();
            OK(MPI_Wait(&request, MPI_STATUS_IGNORE));
            CHECK(kill(pid, SIGUSR2) == 0);
        } else {
            OK(MPI_Send(&pid, 1, MPI_INT, 0, TAG_OTHER, MPI_COMM_WORLD));
            if (late)
                await_go();
            OK(MPI_Recv(&value, 1, MPI_INT, 0, TAG, MPI_COMM_WORLD, MPI_STATUS_IGNORE));
            while (!told && tries++ < 20000)
                nap_ms(1);
            CHECK(told);
        }
    }
}

/* One that is taken back is not received; of one that may have been matched, exactly one of both is true. */
static void cancelled(void)
{
    MPI_Request request, other;
    MPI_Status status;
    int value = 1, flag, came, seen = 0, taken = 0;
    for (int i = 0; i < RACES; i++) {
        int racing = i % 2;
        if (rank == 0) {
            OK(MPI_Issend(&value, 1, MPI_INT, 1, TAG, MPI_COMM_WORLD, &request));
            if (!racing)
                await_go();
            OK(MPI_Cancel(&request));
            OK(MPI_Wait(&request, &status));
            OK(MPI_Test_cancelled(&status, &flag));
            CHECK(racing || flag);
            OK(MPI_Send(&flag, 1, MPI_INT, 1, TAG_OTHER, MPI_COMM_WORLD));
            taken += flag;
        } else {
            came = 0;
            if (racing) {
                OK(MPI_Irecv(&value, 1, MPI_INT, 0, TAG, MPI_COMM_WORLD, &other));
            } else {
                OK(MPI_Probe(0, TAG, MPI_COMM_WORLD, &status));
                go();
            }
            OK(MPI_Recv(&flag, 1, MPI_INT, 0, TAG_OTHER, MPI_COMM_WORLD, MPI_STATUS_IGNORE));
            if (racing) {
                OK(MPI_Test(&other, &came, MPI_STATUS_IGNORE));
                if (!came) {
                    OK(MPI_Cancel(&other));
                    OK(MPI_Wait(&other, MPI_STATUS_IGNORE));
                }
            } else {
                OK(MPI_Iprobe(0, TAG, MPI_COMM_WORLD, &came, &status));
            }
            CHECK(came == !flag);
            seen += came;
        }
        OK(MPI_Barrier(MPI_COMM_WORLD));
    }
    if (rank == 0)
        CHECK(taken >= RACES / 2);
    else
        CHECK(seen <= RACES / 2);
}

/* Cut off, empty, and of a type with gaps. */
static void shapes(void)
{
    int in[8] = {0}, out[8] = {0, 1, 2, 3, 4, 5, 6, 7}, code, class, count;
    MPI_Datatype even;
    MPI_Status status;
    OK(MPI_Type_vector(4, 1, 2, MPI_INT, &even));
    OK(MPI_Type_commit(&even));
    for (int late = 0; late < 2; late++) {
        if (rank == 0) {
            MPI_Request requests[3];
            OK(MPI_Issend(out, 8, MPI_INT, 1, TAG, MPI_COMM_WORLD, &requests[0]));
            OK(MPI_Issend(NULL, 0, MPI_INT, 1, TAG, MPI_COMM_WORLD, &requests[1]));
            OK(MPI_Issend(out, 1, even, 1, TAG, MPI_COMM_WORLD, &requests[2]));
            if (late)
                go();
            OK(MPI_Waitall(3, requests, MPI_STATUSES_IGNORE));
            OK(MPI_Barrier(MPI_COMM_WORLD));
        } else {
            memset(in, 0, sizeof in);
            if (late)
                await_go();
            code = MPI_Recv(in, 4, MPI_INT, 0, TAG, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
            OK(MPI_Error_class(code, &class));
            CHECK(class == MPI_ERR_TRUNCATE && in[3] == 3 && in[4] == 0);
            OK(MPI_Recv(in, 8, MPI_INT, 0, TAG, MPI_COMM_WORLD, &status));
            OK(MPI_Get_count(&status, MPI_INT, &count));
            CHECK(count == 0);
            OK(MPI_Recv(in, 1, even, 0, TAG, MPI_COMM_WORLD, &status));
            CHECK(in[0] == 0 && in[2] == 2 && in[4] == 4 && in[6] == 6);
            OK(MPI_Barrier(MPI_COMM_WORLD));
        }
    }
    OK(MPI_Type_free(&even));
}

/* More than the receiver keeps, and more than the sender copies: the rest waits at the sender, in order. Every seventh is taken back. */
static void crowd(void)
{
    static MPI_Request requests[CROWD];
    unsigned char *out = memory_of((size_t)CROWD * EAGER), *in = memory_of(EAGER);
    MPI_Status status;
    int flag;
    if (rank == 0) {
        for (int i = 0; i < CROWD; i++) {
            fill(out + (size_t)i * EAGER, EAGER, (unsigned)i);
            OK(MPI_Issend(out + (size_t)i * EAGER, EAGER, MPI_BYTE, 1, TAG, MPI_COMM_WORLD, &requests[i]));
        }
        for (int i = 0; i < CROWD; i += 7) {
            OK(MPI_Cancel(&requests[i]));
            OK(MPI_Wait(&requests[i], &status));
            OK(MPI_Test_cancelled(&status, &flag));
            CHECK(flag);
        }
        for (int i = 0; i < 200; i++) {
            OK(MPI_Test(&requests[1], &flag, MPI_STATUS_IGNORE));
            CHECK(!flag);
        }
        go();
        OK(MPI_Waitall(CROWD, requests, MPI_STATUSES_IGNORE));
    } else {
        await_go();
        for (int i = 0; i < CROWD; i++) {
            if (i % 7 == 0)
                continue;
            OK(MPI_Recv(in, EAGER, MPI_BYTE, 0, TAG, MPI_COMM_WORLD, MPI_STATUS_IGNORE));
            CHECK(holds(in, EAGER, (unsigned)i));
        }
        OK(MPI_Iprobe(0, TAG, MPI_COMM_WORLD, &flag, MPI_STATUS_IGNORE));
        CHECK(!flag);
    }
    free(out);
    free(in);
}

int main(int argc, char **argv)
{
    int provided, index;
    begin(&argc, &argv);
    OK(MPI_T_init_thread(MPI_THREAD_SINGLE, &provided));
    OK(MPI_T_pvar_session_create(&session));
    OK(MPI_T_pvar_get_index("pulled_messages", MPI_T_PVAR_CLASS_COUNTER, &index));
    OK(MPI_T_pvar_handle_alloc(session, index, NULL, &pulled, &classes));
    CHECK(classes <= CLASSES);
    OK(MPI_T_pvar_start(session, pulled));
    windows();
    unmatched();
    computing();
    cancelled();
    shapes();
    CHECK(messages_pulled() == 0);
    crowd();
    if (rank == 1)
        CHECK(messages_pulled() > 0);
    OK(MPI_T_pvar_session_free(&session));
    OK(MPI_T_finalize());
    return end();
}
