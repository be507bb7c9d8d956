/* One rank, or FIRST-LAST, ends while all communicate; what becomes of the others. `endings PATTERN ENDING VICTIM HANDLER SEED`:
 * patterns: across (1 MiB to and fro between two hosts), beside (the same between ranks of one host), host (short collectives there, and the same, on a
 * communicator of its own, under MPI_THREAD_MULTIPLE), ring, allreduce (1 MiB), barrier, create (communicators), eager;
 * endings: kill, stop (for three times the silence that is borne), exit (without MPI_Finalize), abort, finalize (too early);
 * handlers: return, stay (the same, and what has failed finalizes late), fatal.
 */
#include "../programs-c/world.h"

#include <signal.h>
#include <spawn.h>
#include <sys/time.h>
#include <unistd.h>

enum { LONG = 1 << 20, ROUNDS_BEFORE = 20, ROUNDS = 1000 };

static char *how, *out, *in;
static MPI_Comm host;

/* Somewhere in the middle of whatever this rank is doing. */
static void end_now(int signal)
{
    (void)signal;
    if (!strcmp(how, "kill")) raise(SIGKILL);
    if (!strcmp(how, "stop")) raise(SIGSTOP);
}

static void wake_later(void)
{
    extern char **environ;
    char command[80];
    pid_t child;
    snprintf(command, sizeof command, "sleep %.1f; kill -CONT %d", 3e-3 * atoi(getenv("WHIMBREL_PEER_TIMEOUT")), (int)getpid());
    posix_spawn(&child, "/bin/sh", NULL, NULL, (char *[]){"sh", "-c", command, NULL}, environ);
}

/* What came is whole, or there is an error. */
static int exchange(MPI_Comm comm, int to, int from, int round)
{
    memset(out, round, LONG);
    int code = MPI_Sendrecv(out, LONG, MPI_BYTE, to, 1, in, LONG, MPI_BYTE, from, 1, comm, MPI_STATUS_IGNORE);
    CHECK(code != MPI_SUCCESS || all_bytes(in, LONG, round & 0xff));
    return code;
}

static int step(const char *pattern, int victim, int partner, int round)
{
    if (!strcmp(pattern, "host")) {
        int sum, code = MPI_Allreduce(&rank, &sum, 1, MPI_INT, MPI_SUM, host);
        return code != MPI_SUCCESS ? code : exchange(host, 1 - rank % 2, 1 - rank % 2, round);
    }
    if (!strcmp(pattern, "create")) {
        MPI_Group all;
        MPI_Comm made = MPI_COMM_NULL;
        OK(MPI_Comm_group(MPI_COMM_WORLD, &all));
        int code = MPI_Comm_create_group(MPI_COMM_WORLD, all, round, &made);
        OK(MPI_Group_free(&all));
        return code != MPI_SUCCESS ? code : MPI_Comm_free(&made);
    }
    if (partner >= 0) return exchange(MPI_COMM_WORLD, partner, partner, round);
    if (!strcmp(pattern, "ring")) return exchange(MPI_COMM_WORLD, (rank + 1) % size, (rank + size - 1) % size, round);
    if (!strcmp(pattern, "allreduce")) return MPI_Allreduce(out, in, LONG, MPI_BYTE, MPI_BOR, MPI_COMM_WORLD);
    if (!strcmp(pattern, "eager")) {
        if (rank == victim) return MPI_SUCCESS;
        nap_ms(1);
        return MPI_Send(out, 100, MPI_BYTE, victim, 2, MPI_COMM_WORLD);
    }
    return MPI_Barrier(MPI_COMM_WORLD);
}

/* Says in the working directory that this rank has finalized, or waits for a while until another one has said so. */
static void await_end(int other, int at_once)
{
    char name[32];
    snprintf(name, sizeof name, "ended.%d", other);
    if (other == rank) fclose(fopen(name, "w"));
    for (int i = 0; !at_once && i < 1000 && access(name, F_OK) != 0; i++)
        nap_ms(10);
}

int main(int argc, char **argv)
{
    /* By which Hydra tells of processes that have ended. */
    signal(SIGUSR1, SIG_IGN);
    if (argc != 6) return 2;
    char *pattern = argv[1], *handler = argv[4];
    begin_threaded(&argc, &argv, !strcmp(pattern, "host") ? MPI_THREAD_MULTIPLE : MPI_THREAD_SINGLE);
    OK(MPI_Comm_split(MPI_COMM_WORLD, rank / 2, rank, &host));
    for (int i = 0; i < 4; i++)
        OK(MPI_Comm_dup(host, &host));
    int victim = atoi(argv[3]), last = strchr(argv[3], '-') ? atoi(strchr(argv[3], '-') + 1) : victim, code = MPI_SUCCESS, class = MPI_SUCCESS, early = 0;
    how = argv[2];
    srand((unsigned)atoi(argv[5]));
    out = memory_of(LONG), in = memory_of(LONG);
    if (!strcmp(handler, "fatal")) OK(MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_ARE_FATAL));
    if (!strcmp(handler, "fatal")) OK(MPI_Comm_set_errhandler(host, MPI_ERRORS_ARE_FATAL));
    OK(MPI_Barrier(MPI_COMM_WORLD));
    double began = MPI_Wtime();
    int partner = !strcmp(pattern, "across") ? (rank + size / 2) % size : !strcmp(pattern, "beside") || !strcmp(pattern, "host") ? rank ^ 1 : -1;
    int ends = rank >= victim && rank <= last, concerned = partner < 0 || ends || (partner >= victim && partner <= last);
    for (int round = 0; concerned && round < ROUNDS && code == MPI_SUCCESS; round++) {
        if (ends && round == ROUNDS_BEFORE) {
            if (!strcmp(how, "exit")) exit(0);
            if (!strcmp(how, "abort")) MPI_Abort(MPI_COMM_WORLD, 3);
            if ((early = !strcmp(how, "finalize"))) break;
            if (!strcmp(how, "stop")) wake_later();
            signal(SIGALRM, end_now);
            setitimer(ITIMER_REAL, &(struct itimerval){.it_value.tv_usec = 1 + rand() % 5000}, NULL);
        }
        if (!strcmp(how, "finalize") && round == 2 * ROUNDS_BEFORE) break;
        code = step(pattern, victim, partner, round);
    }
    double lasted = MPI_Wtime() - began;
    if (code) MPI_Error_class(code, &class);
    printf("rank %d: class %d after %.2f s\n", rank, class, lasted);
    fflush(stdout);
    if (!strcmp(handler, "stay")) nap_ms(4 * atoi(getenv("WHIMBREL_PEER_TIMEOUT")));
    code = MPI_Finalize();
    printf("rank %d: finalized after %.2f s, %s\n", rank, MPI_Wtime() - began, early ? "early" : code ? "failing" : "well");
    fflush(stdout);
    /* Hydra may end the others when all of one host have ended. */
    int lasts = !strcmp(how, "stop") || !strcmp(how, "finalize");
    for (int other = 0; other < size; other++)
        await_end(other, other == rank || (other >= victim && other <= last && !lasts));
    return 0;
}
