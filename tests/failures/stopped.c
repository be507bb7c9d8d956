/* A rank that is stopped (SIGSTOP) after MPI_Init, before anybody has spoken to it, holds nobody up in calls that do not wait; when it goes on, it
 * gets what was sent. By another launcher than ours each rank hands out its own memory: stopped.py.
 * ranks: 3
 * timeout: 60
 */
#include "../programs-c/world.h"

#include <signal.h>
#include <unistd.h>

enum { LONG = 1 << 20, STOPPED = 2 };

/* Whether process `pid` is stopped. */
static int is_stopped(int pid)
{
    char path[64], text[512];
    snprintf(path, sizeof path, "/proc/%d/stat", pid);
    FILE *file = fopen(path, "r");
    CHECK(file != NULL);
    size_t bytes = fread(text, 1, sizeof text - 1, file);
    fclose(file);
    text[bytes] = 0;
    const char *state = strrchr(text, ')');
    CHECK(state != NULL);
    return state[2] == 'T';
}

/* Where the stopped rank leaves its number. */
static const char *place(void)
{
    return getenv("STOPPED_FILE") ? getenv("STOPPED_FILE") : "stopped.pid";
}

static void stop_here(void)
{
    char made[300];
    snprintf(made, sizeof made, "%s.new", place());
    FILE *file = fopen(made, "w");
    CHECK(file != NULL && fprintf(file, "%d", (int)getpid()) > 0 && fclose(file) == 0 && rename(made, place()) == 0);
    raise(SIGSTOP);
}

static int stopped_process(void)
{
    int pid = 0;
    for (FILE *file; (file = fopen(place(), "r")) == NULL;)
        nap_ms(1);
    FILE *file = fopen(place(), "r");
    CHECK(file != NULL && fscanf(file, "%d", &pid) == 1 && fclose(file) == 0);
    while (!is_stopped(pid))
        nap_ms(1);
    return pid;
}

int main(int argc, char **argv)
{
    static unsigned char out[LONG], in[LONG];
    begin(&argc, &argv);
    CHECK(size == 3);
    int words[3] = {rank, -1, -1};
    if (rank == STOPPED) {
        stop_here();
        for (int from = 0; from < STOPPED; from++) {
            OK(MPI_Recv(&words[1], 1, MPI_INT, from, 1, MPI_COMM_WORLD, MPI_STATUS_IGNORE));
            CHECK(words[1] == from);
            OK(MPI_Recv(in, LONG, MPI_BYTE, from, 2, MPI_COMM_WORLD, MPI_STATUS_IGNORE));
            CHECK(holds(in, LONG, (unsigned)from));
            fill(out, LONG, STOPPED);
            OK(MPI_Send(out, LONG, MPI_BYTE, from, 3, MPI_COMM_WORLD));
            OK(MPI_Recv(&words[1], 1, MPI_INT, from, 4, MPI_COMM_WORLD, MPI_STATUS_IGNORE));
        }
        return end();
    }
    MPI_Request requests[4];
    int other = 1 - rank, flag, pid = stopped_process();
    fill(out, LONG, (unsigned)rank);
    OK(MPI_Isend(&words[0], 1, MPI_INT, STOPPED, 1, MPI_COMM_WORLD, &requests[0]));
    OK(MPI_Isend(out, LONG, MPI_BYTE, STOPPED, 2, MPI_COMM_WORLD, &requests[1]));
    OK(MPI_Irecv(in, LONG, MPI_BYTE, STOPPED, 3, MPI_COMM_WORLD, &requests[2]));
    OK(MPI_Issend(&words[0], 1, MPI_INT, STOPPED, 4, MPI_COMM_WORLD, &requests[3]));
    OK(MPI_Iprobe(STOPPED, 3, MPI_COMM_WORLD, &flag, MPI_STATUS_IGNORE));
    CHECK(!flag);
    for (int i = 0; i < 1000; i++) {
        OK(MPI_Test(&requests[1], &flag, MPI_STATUS_IGNORE));
        CHECK(!flag);
    }
    CHECK(is_stopped(pid));
    /* All of that has returned while the other is stopped: these two say so to each other, and only then it goes on. */
    OK(MPI_Sendrecv(&words[0], 1, MPI_INT, other, 6, &words[2], 1, MPI_INT, other, 6, MPI_COMM_WORLD, MPI_STATUS_IGNORE));
    CHECK(words[2] == other && is_stopped(pid));
    OK(MPI_Sendrecv(&words[0], 1, MPI_INT, other, 7, &words[2], 1, MPI_INT, other, 7, MPI_COMM_WORLD, MPI_STATUS_IGNORE));
    if (rank == 0)
        CHECK(kill(pid, SIGCONT) == 0);
    OK(MPI_Waitall(4, requests, MPI_STATUSES_IGNORE));
    CHECK(holds(in, LONG, STOPPED));
    return end();
}
