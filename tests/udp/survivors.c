/* A process that fails takes with it what needs it, raised on the communicators concerned; the others go on among themselves, and finalize.
 * With an argument the victim ends for good, else it only stops, for launchers that would end the job. With two, the others find out when they finalize.
 * ranks: 3
 * env: WHIMBREL_FABRIC=udp WHIMBREL_PEER_TIMEOUT=700
 * status: nonzero
 * output: both have gone on and finalized
 */
#include "../programs-c/world.h"

#include <errno.h>
#include <signal.h>
#include <unistd.h>

enum { VICTIM = 1, LONG = 1 << 20, ROUNDS = 2000 };

static MPI_Comm raised_on;
static int raised_class;
static char said[MPI_MAX_ERROR_STRING];

static void handler(MPI_Comm *comm, int *code, ...)
{
    int length;
    raised_on = *comm;
    MPI_Error_class(*code, &raised_class);
    MPI_Error_string(*code, said, &length);
}

/* The latest error says which process is lost, and why. */
static int says_why(void)
{
    char why[80];
    snprintf(why, sizeof why, "has not answered on any network for %s ms", getenv("WHIMBREL_PEER_TIMEOUT"));
    return strstr(said, ": rank 1 of MPI_COMM_WORLD cannot be reached: it runs on host ") && strstr(said, why);
}

/* `call` fails for the lack of a process, and says so on `comm`. */
#define LOST(comm, call)                                                    \
    do {                                                                    \
        raised_on = MPI_COMM_NULL;                                          \
        said[0] = 0;                                                        \
        CHECK((call) != MPI_SUCCESS);                                       \
        CHECK(raised_on == (comm) && raised_class == MPI_ERR_PROC_ABORTED); \
        CHECK(says_why());                                                  \
    } while (0)

/* Exchanges of all lengths with the other survivor, which is rank `other` of `comm`. */
static void exchange(MPI_Comm comm, int other, int rounds)
{
    static unsigned char out[LONG], in[LONG];
    for (int i = 0; i < rounds; i++) {
        int bytes = i % 100 ? i % 1000 : LONG;
        fill(out, (size_t)bytes, (unsigned)i);
        memset(in, 0, (size_t)bytes);
        OK(MPI_Sendrecv(out, bytes, MPI_BYTE, other, 5, in, bytes, MPI_BYTE, other, 5, comm, MPI_STATUS_IGNORE));
        CHECK(holds(in, (size_t)bytes, (unsigned)i));
    }
}

/* Collectives among the survivors. */
static void agree(MPI_Comm comm)
{
    int sum, one = 1;
    for (int i = 0; i < 100; i++) {
        OK(MPI_Allreduce(&one, &sum, 1, MPI_INT, MPI_SUM, comm));
        CHECK(sum == 2);
        OK(MPI_Barrier(comm));
    }
}

int main(int argc, char **argv)
{
    /* By which Hydra tells of processes that have ended. */
    signal(SIGUSR1, SIG_IGN);
    begin(&argc, &argv);
    MPI_Errhandler counted;
    MPI_Comm world, second, pair, again;
    MPI_Group all, living;
    int pids[3], pid = (int)getpid(), victim = VICTIM, other = 2 - rank, word = 0, flag;
    OK(MPI_Comm_create_errhandler(handler, &counted));
    OK(MPI_Comm_dup(MPI_COMM_WORLD, &world));
    OK(MPI_Comm_dup(MPI_COMM_WORLD, &second));
    OK(MPI_Comm_set_errhandler(world, counted));
    OK(MPI_Comm_set_errhandler(second, counted));
    OK(MPI_Comm_split(MPI_COMM_WORLD, rank == VICTIM, rank, &pair));
    OK(MPI_Allgather(&pid, 1, MPI_INT, pids, 1, MPI_INT, MPI_COMM_WORLD));
    if (rank == VICTIM) {
        OK(MPI_Send(&word, 1, MPI_INT, 0, 1, world));
        OK(MPI_Barrier(MPI_COMM_WORLD));
        nap_ms(50);
        raise(argc > 1 ? SIGKILL : SIGSTOP);
        return 1;
    }
    OK(MPI_Barrier(MPI_COMM_WORLD));
    nap_ms(100);
    if (argc > 2) {
        OK(MPI_Finalize());
        printf("rank %d has gone on and finalized\n", rank);
        return 0;
    }

    /* What needs the victim, what may be matched by it, and what does not. */
    char *sent = memory_of(LONG), *received = memory_of(LONG);
    MPI_Request exact, any, to, synchronous, collective, healthy;
    int mine = rank, theirs = -1, sum;
    OK(MPI_Irecv(received, LONG, MPI_BYTE, VICTIM, 3, world, &exact));
    OK(MPI_Irecv(&word, 1, MPI_INT, MPI_ANY_SOURCE, 3, second, &any));
    OK(MPI_Irecv(&theirs, 1, MPI_INT, other, 4, world, &healthy));
    OK(MPI_Isend(sent, LONG, MPI_BYTE, VICTIM, 4, second, &to));
    OK(MPI_Issend(sent, 1, MPI_BYTE, VICTIM, 5, world, &synchronous));
    OK(MPI_Iallreduce(&mine, &sum, 1, MPI_INT, MPI_SUM, world, &collective));
    exchange(pair, !!other, ROUNDS);
    LOST(world, MPI_Wait(&exact, MPI_STATUS_IGNORE));
    LOST(second, MPI_Wait(&any, MPI_STATUS_IGNORE));
    LOST(second, MPI_Wait(&to, MPI_STATUS_IGNORE));
    LOST(world, MPI_Wait(&synchronous, MPI_STATUS_IGNORE));
    LOST(world, MPI_Wait(&collective, MPI_STATUS_IGNORE));
    OK(MPI_Send(&mine, 1, MPI_INT, other, 4, world));
    OK(MPI_Wait(&healthy, MPI_STATUS_IGNORE));
    CHECK(theirs == other);

    /* Later calls. What the victim had sent before is received all the same. */
    LOST(second, MPI_Send(sent, 1, MPI_BYTE, VICTIM, 6, second));
    LOST(second, MPI_Send(sent, LONG, MPI_BYTE, VICTIM, 6, second));
    LOST(world, MPI_Recv(received, 1, MPI_BYTE, VICTIM, 6, world, MPI_STATUS_IGNORE));
    LOST(world, MPI_Recv(received, 1, MPI_BYTE, MPI_ANY_SOURCE, 6, world, MPI_STATUS_IGNORE));
    LOST(world, MPI_Probe(VICTIM, 6, world, MPI_STATUS_IGNORE));
    LOST(world, MPI_Iprobe(MPI_ANY_SOURCE, 6, world, &flag, MPI_STATUS_IGNORE));
    LOST(world, MPI_Sendrecv(sent, 1, MPI_BYTE, VICTIM, 7, received, 1, MPI_BYTE, VICTIM, 7, world, MPI_STATUS_IGNORE));
    LOST(world, MPI_Sendrecv(sent, 1, MPI_BYTE, VICTIM, 7, received, 1, MPI_BYTE, other, 7, world, MPI_STATUS_IGNORE));
    LOST(second, MPI_Barrier(second));
    printf("rank %d: %s\n", rank, said);
    if (rank == 0) {
        OK(MPI_Recv(&word, 1, MPI_INT, VICTIM, 1, world, MPI_STATUS_IGNORE));
    }
    OK(MPI_Sendrecv(&mine, 1, MPI_INT, 0, 8, &theirs, 1, MPI_INT, 0, 8, MPI_COMM_SELF, MPI_STATUS_IGNORE));
    CHECK(theirs == rank);

    /* The others go on, also in communicators that are made now. */
    exchange(world, other, 50);
    exchange(pair, !!other, ROUNDS);
    agree(pair);
    OK(MPI_Comm_group(world, &all));
    OK(MPI_Group_excl(all, 1, &victim, &living));
    OK(MPI_Comm_create_group(world, living, 9, &again));
    agree(again);
    exchange(again, !!other, 200);
    OK(MPI_Irecv(&theirs, 1, MPI_INT, MPI_ANY_SOURCE, MPI_ANY_TAG, again, &any));
    OK(MPI_Send(&mine, 1, MPI_INT, !!other, 0, again));
    OK(MPI_Wait(&any, MPI_STATUS_IGNORE));
    CHECK(theirs == other);
    OK(MPI_Finalize());
    if (argc > 1) {
        printf("rank %d has gone on and finalized\n", rank);
        return 0;
    }
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
