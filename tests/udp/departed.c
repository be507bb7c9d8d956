/* A process dies between MPI_Finalize's barrier and the last meeting of all: the others finalize without it, though they had sent to it.
 * It is rank 0, whose report of the job nobody reads: it waits behind the barrier, and ends there.
 * With an argument so many of the first ranks end for good, else rank 0 only stops, for launchers that would end the job.
 * ranks: 3
 * env: WHIMBREL_FABRIC=udp WHIMBREL_PEER_TIMEOUT=700 WHIMBREL_REPORT=on
 * status: nonzero
 * output: rank [12] has finalized\n(.*\n)*rank [12] has finalized
 */
#include "../programs-c/world.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/time.h>
#include <unistd.h>

enum { LONG = 1 << 20, SHORTS = 100, END_AFTER_US = 400000 };

static int for_good;

static void end_here(int number)
{
    (void)number;
    raise(for_good ? SIGKILL : SIGSTOP);
}

/* Whoever writes to stderr from now on waits for ever. */
static void plug_stderr(void)
{
    static char bytes[4096];
    int ends[2], flags;
    CHECK(pipe(ends) == 0);
    flags = fcntl(ends[1], F_GETFL);
    CHECK(fcntl(ends[1], F_SETFL, flags | O_NONBLOCK) == 0);
    while (write(ends[1], bytes, sizeof bytes) > 0 || write(ends[1], bytes, 1) > 0)
        ;
    CHECK(fcntl(ends[1], F_SETFL, flags) == 0);
    CHECK(dup2(ends[1], STDERR_FILENO) == STDERR_FILENO);
}

int main(int argc, char **argv)
{
    signal(SIGUSR1, SIG_IGN);
    begin(&argc, &argv);
    int pid = (int)getpid(), victims = argc > 1 ? atoi(argv[1]) : 1;
    for_good = argc > 1;
    OK(MPI_Bcast(&pid, 1, MPI_INT, 0, MPI_COMM_WORLD));
    if (rank < victims) {
        struct itimerval soon = {.it_value = {.tv_usec = END_AFTER_US}};
        signal(SIGALRM, end_here);
        if (rank == 0)
            plug_stderr();
        CHECK(setitimer(ITIMER_REAL, &soon, NULL) == 0);
    }
#ifndef NOTHING_SENT
    else {
        char *sent = memory_of(LONG);
        MPI_Request request;
        for (int i = 0; i < SHORTS; i++)
            OK(MPI_Send(sent, i, MPI_BYTE, 0, 1, MPI_COMM_WORLD));
        OK(MPI_Isend(sent, LONG, MPI_BYTE, 0, 1, MPI_COMM_WORLD, &request));
        OK(MPI_Request_free(&request));
        OK(MPI_Issend(sent, 1, MPI_BYTE, 0, 1, MPI_COMM_WORLD, &request));
        OK(MPI_Request_free(&request));
    }
#endif
    OK(MPI_Finalize());
    printf("rank %d has finalized\n", rank);
    fflush(stdout);
    /* The launcher may end all of them when one has ended. */
    nap_ms(1500);
    if (argc == 1) kill(pid, SIGKILL);
    return 0;
}
