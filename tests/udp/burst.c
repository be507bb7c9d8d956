/* Short messages sent one after another share datagrams; those that wait for company leave although the program computes.
 * ranks: 2
 * env: WHIMBREL_FABRIC=udp
 */
#include "../programs-c/world.h"

#include <signal.h>
#include <string.h>
#include <unistd.h>

enum { WINDOW = 64, ROUNDS = 100, MESSAGES = WINDOW * ROUNDS, ATTEMPTS = 20 };

static volatile sig_atomic_t told;

static void on_signal(int number)
{
    (void)number;
    told++;
}

/* What this host has handed to its network over UDP: datagrams that leave together count as one. */
static long sent_by_udp(void)
{
    char line[1024];
    long sent = -1;
    FILE *file = fopen("/proc/net/snmp", "r");
    while (file && fgets(line, sizeof line, file))
        if (sscanf(line, "Udp: %*d %*d %*d %ld", &sent) == 1)
            break;
    if (file)
        fclose(file);
    return sent;
}

/* Whether that was so in a time in which nobody else took the cores: where ranks are kept from running, messages do not wait for each other. */
static int share_datagrams(void)
{
    MPI_Request requests[WINDOW];
    int values[WINDOW];
    MPI_Barrier(MPI_COMM_WORLD);
    long before = sent_by_udp();
    /* Without that file nothing could be judged. */
    CHECK(before >= 0);
    for (int round = 0; round < ROUNDS; round++) {
        for (int i = 0; i < WINDOW; i++) {
            values[i] = rank == 0 ? round * WINDOW + i : -1;
            if (rank == 0)
                OK(MPI_Isend(&values[i], 1, MPI_INT, 1, 1, MPI_COMM_WORLD, &requests[i]));
            else
                OK(MPI_Irecv(&values[i], 1, MPI_INT, 0, 1, MPI_COMM_WORLD, &requests[i]));
        }
        OK(MPI_Waitall(WINDOW, requests, MPI_STATUSES_IGNORE));
        for (int i = 0; i < WINDOW; i++)
            CHECK(values[i] == round * WINDOW + i);
        OK(MPI_Sendrecv(NULL, 0, MPI_INT, 1 - rank, 2, NULL, 0, MPI_INT, 1 - rank, 2, MPI_COMM_WORLD, MPI_STATUS_IGNORE));
    }
    long after = sent_by_udp();
    printf("rank %d: %d messages, %ld times something left\n", rank, MESSAGES, after - before);
    int shared = after - before < MESSAGES / 2, on_all;
    if (sysconf(_SC_NPROCESSORS_ONLN) < 2) {
        /* Ranks that share a core let nothing wait. */
        printf("skip  sharing datagrams: two ranks have one processor\n");
        shared = 1;
    }
    OK(MPI_Allreduce(&shared, &on_all, 1, MPI_INT, MPI_MIN, MPI_COMM_WORLD));
    return on_all;
}

/* Rank 0 does nothing but wait for a signal of rank 1, who has received all by then. */
static void leave_while_computing(void)
{
    enum { COUNT = 5 };
    for (int round = 0; round < 20; round++) {
        if (rank == 0) {
            int pid = (int)getpid();
            MPI_Request requests[COUNT];
            for (int i = 0; i < COUNT; i++)
                OK(MPI_Isend(&pid, 1, MPI_INT, 1, 3, MPI_COMM_WORLD, &requests[i]));
            while (told <= round)
                ;
            OK(MPI_Waitall(COUNT, requests, MPI_STATUSES_IGNORE));
        } else {
            int pid = 0;
            for (int i = 0; i < COUNT; i++)
                OK(MPI_Recv(&pid, 1, MPI_INT, 0, 3, MPI_COMM_WORLD, MPI_STATUS_IGNORE));
            CHECK(kill(pid, SIGUSR1) == 0);
        }
    }
}

int main(int argc, char **argv)
{
    signal(SIGUSR1, on_signal);
    begin(&argc, &argv);
    int attempts = 0;
    while (!share_datagrams())
        CHECK(++attempts < ATTEMPTS);
    leave_while_computing();
    return end();
}
