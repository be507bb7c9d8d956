/* Ranks that fork, and run other programs, between messages and with some under way: children end as they like, and no message is
 * disturbed by them.
 * ranks: 1 2 4
 */
#include "world.h"

#include <sys/wait.h>
#include <unistd.h>

enum { ROUNDS = 12, BYTES = 3 << 20 };

static void ended_well(pid_t child, int wanted)
{
    int status;
    CHECK(child > 0);
    CHECK(waitpid(child, &status, 0) == child);
    CHECK(WIFEXITED(status) && WEXITSTATUS(status) == wanted);
}

int main(int argc, char **argv)
{
    begin(&argc, &argv);
    int to = (rank + 1) % size, from = (rank + size - 1) % size;
    unsigned char *out = memory_of(BYTES), *in = memory_of(BYTES);
    fflush(NULL);
    for (int round = 0; round < ROUNDS; round++) {
        MPI_Request requests[2];
        int bytes = round % 3 == 0 ? 8 : round % 3 == 1 ? 50000 : BYTES;
        fill(out, (size_t)bytes, (unsigned)(rank + 9 * round));
        OK(MPI_Irecv(in, bytes, MPI_BYTE, from, round, MPI_COMM_WORLD, &requests[0]));
        pid_t early = fork();
        if (early == 0)
            _exit(7);
        OK(MPI_Isend(out, bytes, MPI_BYTE, to, round, MPI_COMM_WORLD, &requests[1]));
        /* It keeps copies of both buffers, of which it writes to one. */
        pid_t writing = fork();
        if (writing == 0) {
            memset(in, 0xee, (size_t)bytes);
            memset(out, 0xee, (size_t)bytes);
            _exit(8);
        }
        pid_t other = fork();
        if (other == 0) {
            execlp("sh", "sh", "-c", "exit 9", (char *)NULL);
            _exit(1);
        }
        OK(MPI_Waitall(2, requests, MPI_STATUSES_IGNORE));
        CHECK(holds(in, (size_t)bytes, (unsigned)(from + 9 * round)));
        CHECK(holds(out, (size_t)bytes, (unsigned)(rank + 9 * round)));
        ended_well(early, 7);
        ended_well(writing, 8);
        ended_well(other, 9);
        /* As most programs do it. */
        FILE *pipe = popen("echo ready", "r");
        char word[16] = "";
        CHECK(pipe != NULL && fscanf(pipe, "%15s", word) == 1 && !strcmp(word, "ready"));
        CHECK(pclose(pipe) == 0);
        CHECK(system("true") == 0);
    }
    int sum, one = 1;
    OK(MPI_Allreduce(&one, &sum, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD));
    CHECK(sum == size);
    free(out);
    free(in);
    return end();
}
