/* A process dies between MPI_Finalize's barrier and the last meeting of all: the others finalize without it, though they had sent to it.
 * With an argument all ranks from that one on end for good, else one only stops, for launchers that would end the job.
 * ranks: 3
 * env: WHIMBREL_FABRIC=udp WHIMBREL_PEER_TIMEOUT=700 WHIMBREL_REPORT=on
 * status: nonzero
 * output: rank [02] has finalized\n(.*\n)*rank [02] has finalized
 */
#include "../programs-c/world.h"

#include <signal.h>
#include <unistd.h>

enum { VICTIM = 1, LONG = 1 << 20, SHORTS = 100 };

int main(int argc, char **argv)
{
    signal(SIGUSR1, SIG_IGN);
    begin(&argc, &argv);
    int pid = (int)getpid(), first = argc > 1 ? atoi(argv[1]) : VICTIM, last = argc > 1 ? size - 1 : VICTIM;
    OK(MPI_Bcast(&pid, 1, MPI_INT, first, MPI_COMM_WORLD));
    if (rank >= first && rank <= last) {
        /* The others take it for that of MPI_Finalize. */
        OK(MPI_Barrier(MPI_COMM_WORLD));
        raise(argc > 1 ? SIGKILL : SIGSTOP);
        return 1;
    }
#ifndef NOTHING_SENT
    char *sent = memory_of(LONG);
    MPI_Request request;
    for (int i = 0; i < SHORTS; i++)
        OK(MPI_Send(sent, i, MPI_BYTE, first, 1, MPI_COMM_WORLD));
    OK(MPI_Isend(sent, LONG, MPI_BYTE, first, 1, MPI_COMM_WORLD, &request));
    OK(MPI_Request_free(&request));
    OK(MPI_Issend(sent, 1, MPI_BYTE, first, 1, MPI_COMM_WORLD, &request));
    OK(MPI_Request_free(&request));
#endif
    OK(MPI_Finalize());
    printf("rank %d has finalized\n", rank);
    fflush(stdout);
    /* The launcher may end all of them when one has ended. */
    nap_ms(1500);
    if (argc == 1) kill(pid, SIGKILL);
    return 0;
}
