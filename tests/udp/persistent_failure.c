/* Persistent and partitioned operations with a process that fails: those under way and those started later end in errors that are raised on their
 * communicators, and can be freed or started again; those with others go on.
 * ranks: 3
 * env: WHIMBREL_FABRIC=udp WHIMBREL_PEER_TIMEOUT=700
 * status: nonzero
 * output: both have gone on and finalized
 */
#include "../programs-c/world.h"

#include <errno.h>
#include <signal.h>
#include <unistd.h>

enum { VICTIM = 1, LONG = 1 << 20, PARTITIONS = 4 };

static MPI_Comm raised_on;
static int raised_class, raised;

static void handler(MPI_Comm *comm, int *code, ...)
{
    raised_on = *comm;
    raised++;
    MPI_Error_class(*code, &raised_class);
}

/* `call` fails for the lack of a process, and says so on `comm` once. */
#define LOST(comm, call)                                                    \
    do {                                                                    \
        raised = 0;                                                         \
        CHECK((call) != MPI_SUCCESS);                                       \
        CHECK(raised == 1 && raised_on == (comm));                          \
        CHECK(raised_class == MPI_ERR_PROC_ABORTED);                        \
    } while (0)

/* The same for an operation of which several ended in one call. */
#define LOST_SOME(comm, call)                                               \
    do {                                                                    \
        raised = 0;                                                         \
        CHECK((call) == MPI_ERR_IN_STATUS);                                 \
        CHECK(raised == 1 && raised_on == (comm));                          \
    } while (0)

enum kind { SEND, SEND_LONG, SSEND, RECEIVE, RECEIVE_LONG, RECEIVE_ANY, PSEND, PRECEIVE, BARRIER, ALLREDUCE, BCAST, KINDS };
static unsigned char memory[KINDS][LONG];
static int mine = 1, sum;

static MPI_Request make(enum kind kind, MPI_Comm comm)
{
    MPI_Request request;
    void *at = memory[kind];
    int tag = 100 + (int)kind;
    switch (kind) {
    case SEND:
        OK(MPI_Send_init(at, 100, MPI_BYTE, VICTIM, tag, comm, &request));
        break;
    case SEND_LONG:
        OK(MPI_Send_init(at, LONG, MPI_BYTE, VICTIM, tag, comm, &request));
        break;
    case SSEND:
        OK(MPI_Ssend_init(at, 1, MPI_BYTE, VICTIM, tag, comm, &request));
        break;
    case RECEIVE:
        OK(MPI_Recv_init(at, 100, MPI_BYTE, VICTIM, tag, comm, &request));
        break;
    case RECEIVE_LONG:
        OK(MPI_Recv_init(at, LONG, MPI_BYTE, VICTIM, tag, comm, &request));
        break;
    case RECEIVE_ANY:
        OK(MPI_Recv_init(at, LONG, MPI_BYTE, MPI_ANY_SOURCE, tag, comm, &request));
        break;
    case PSEND:
        OK(MPI_Psend_init(at, PARTITIONS, LONG / PARTITIONS, MPI_BYTE, VICTIM, tag, comm, MPI_INFO_NULL, &request));
        break;
    case PRECEIVE:
        OK(MPI_Precv_init(at, PARTITIONS, LONG / PARTITIONS, MPI_BYTE, VICTIM, tag, comm, MPI_INFO_NULL, &request));
        break;
    case BARRIER:
        OK(MPI_Barrier_init(comm, MPI_INFO_NULL, &request));
        break;
    case ALLREDUCE:
        OK(MPI_Allreduce_init(&mine, &sum, 1, MPI_INT, MPI_SUM, comm, MPI_INFO_NULL, &request));
        break;
    default:
        OK(MPI_Bcast_init(at, LONG, MPI_BYTE, VICTIM, comm, MPI_INFO_NULL, &request));
    }
    return request;
}

int main(int argc, char **argv)
{
    MPI_Errhandler counted;
    MPI_Comm world, second, pair;
    MPI_Request all[KINDS], healthy[2];
    int pids[3], pid = (int)getpid(), other, theirs = -1, index, count, indices[KINDS];
    begin(&argc, &argv);
    other = 2 - rank;
    OK(MPI_Comm_create_errhandler(handler, &counted));
    OK(MPI_Comm_dup(MPI_COMM_WORLD, &world));
    OK(MPI_Comm_dup(MPI_COMM_WORLD, &second));
    OK(MPI_Comm_set_errhandler(world, counted));
    OK(MPI_Comm_set_errhandler(second, counted));
    /* An error that is raised there by mistake ends the job. */
    OK(MPI_Comm_set_errhandler(MPI_COMM_SELF, MPI_ERRORS_ARE_FATAL));
    OK(MPI_Comm_split(MPI_COMM_WORLD, rank == VICTIM, rank, &pair));
    OK(MPI_Allgather(&pid, 1, MPI_INT, pids, 1, MPI_INT, MPI_COMM_WORLD));
    for (enum kind kind = SEND; kind < KINDS; kind++)
        all[kind] = rank == VICTIM && kind < BARRIER ? MPI_REQUEST_NULL : make(kind, kind % 2 ? second : world);
    OK(MPI_Barrier(MPI_COMM_WORLD));
    if (rank == VICTIM) {
        nap_ms(50);
        raise(SIGSTOP);
        return 1;
    }
    OK(MPI_Recv_init(&theirs, 1, MPI_INT, !!other, 1, pair, &healthy[0]));
    OK(MPI_Send_init(&rank, 1, MPI_INT, !!other, 1, pair, &healthy[1]));
    nap_ms(100);

    /* Under way when it fails. A short send is complete as soon as it has left. */
    OK(MPI_Startall(KINDS, all));
    OK(MPI_Pready_range(0, PARTITIONS - 1, all[PSEND]));
    OK(MPI_Wait(&all[SEND], MPI_STATUS_IGNORE));
    for (enum kind kind = SEND_LONG; kind < KINDS; kind++)
        LOST(kind % 2 ? second : world, MPI_Wait(&all[kind], MPI_STATUS_IGNORE));

    /* Started later, again and again: the call that starts it or the one that completes it fails. */
    for (int round = 0; round < 8; round++) {
        for (enum kind kind = SEND; kind < KINDS; kind++) {
            MPI_Comm on = kind % 2 ? second : world;
            int flag = 0;
            raised = 0;
            int started = round % 2 ? MPI_Start(&all[kind]) : MPI_Startall(1, &all[kind]);
            CHECK(all[kind] != MPI_REQUEST_NULL);
            if (started != MPI_SUCCESS) {
                CHECK(raised == 1 && raised_on == on && raised_class == MPI_ERR_PROC_ABORTED);
                OK(MPI_Wait(&all[kind], MPI_STATUS_IGNORE)); /* it is inactive */
                continue;
            }
            CHECK(kind != SEND && kind != SEND_LONG && kind != SSEND);
            if (kind == PSEND)
                OK(MPI_Pready_range(0, PARTITIONS - 1, all[kind])); /* whoever completes it hears of the failure */
            switch (round / 2) {
            case 0:
                LOST(on, MPI_Wait(&all[kind], MPI_STATUS_IGNORE));
                break;
            case 1:
                LOST(on, MPI_Waitany(1, &all[kind], &index, MPI_STATUS_IGNORE));
                break;
            case 2:
                LOST_SOME(on, MPI_Waitsome(1, &all[kind], &count, indices, MPI_STATUSES_IGNORE));
                break;
            default:
                raised = 0;
                int code = MPI_SUCCESS;
                while (!flag && code == MPI_SUCCESS)
                    code = MPI_Test(&all[kind], &flag, MPI_STATUS_IGNORE);
                CHECK(code != MPI_SUCCESS && raised == 1 && raised_on == on);
            }
            OK(MPI_Wait(&all[kind], MPI_STATUS_IGNORE)); /* it is inactive */
        }
        theirs = -1;
        OK(MPI_Startall(2, healthy));
        OK(MPI_Waitall(2, healthy, MPI_STATUSES_IGNORE));
        CHECK(theirs == other);
    }
    for (enum kind kind = SEND; kind < KINDS; kind++)
        OK(MPI_Request_free(&all[kind]));
    OK(MPI_Request_free(&healthy[0]));
    OK(MPI_Request_free(&healthy[1]));
    OK(MPI_Finalize());
    if (rank == 0) {
        while (kill(pids[2], 0) == 0 || errno != ESRCH)
            nap_ms(10);
        printf("both have gone on and finalized\n");
        fflush(stdout);
        kill(pids[VICTIM], SIGKILL);
        nap_ms(100);
    }
    return 0;
}
