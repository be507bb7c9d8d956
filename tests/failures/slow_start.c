/* A rank that has not come to its MPI_Init yet, holds nobody up in calls that do not wait: messages to it leave when it is there.
 * ranks: 3
 * timeout: 60
 */
#include "../programs-c/world.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

enum { LONG = 1 << 20 };

static char gate[200];

/* Rank 2 comes when rank 0 says so. */
static void wait_outside(void)
{
    const char *mine = getenv("WHIMBREL_RANK");
    CHECK(mine != NULL);
    snprintf(gate, sizeof gate, "gate");
    if (strcmp(mine, "2") != 0)
        return;
    while (access(gate, F_OK) != 0)
        nap_ms(1);
}

int main(int argc, char **argv)
{
    wait_outside();
    begin(&argc, &argv);
    static unsigned char out[LONG], in[LONG];
    MPI_Request requests[5];
    int words[3] = {rank, -1, -1};
    if (rank < 2) {
        int other = 1 - rank, flag;
        fill(out, LONG, (unsigned)rank);
        OK(MPI_Isend(&words[0], 1, MPI_INT, 2, 1, MPI_COMM_WORLD, &requests[0]));
        OK(MPI_Isend(out, LONG, MPI_BYTE, 2, 2, MPI_COMM_WORLD, &requests[1]));
        OK(MPI_Irecv(&words[1], 1, MPI_INT, 2, 3, MPI_COMM_WORLD, &requests[2]));
        OK(MPI_Irecv(in, LONG, MPI_BYTE, 2, 4, MPI_COMM_WORLD, &requests[3]));
        OK(MPI_Issend(&words[0], 1, MPI_INT, 2, 5, MPI_COMM_WORLD, &requests[4]));
        OK(MPI_Test(&requests[1], &flag, MPI_STATUS_IGNORE));
        CHECK(!flag);
        /* All of that is started while rank 2 is not there: the two others say so to each other, and only then it comes. */
        OK(MPI_Sendrecv(&words[0], 1, MPI_INT, other, 6, &words[2], 1, MPI_INT, other, 6, MPI_COMM_WORLD, MPI_STATUS_IGNORE));
        CHECK(words[2] == other);
        if (rank == 0)
            close(open(gate, O_CREAT | O_WRONLY, 0600));
        OK(MPI_Waitall(5, requests, MPI_STATUSES_IGNORE));
        CHECK(words[1] == 2 && holds(in, LONG, 2));
    } else {
        for (int from = 0; from < 2; from++) {
            OK(MPI_Recv(&words[1], 1, MPI_INT, from, 1, MPI_COMM_WORLD, MPI_STATUS_IGNORE));
            CHECK(words[1] == from);
            OK(MPI_Recv(in, LONG, MPI_BYTE, from, 2, MPI_COMM_WORLD, MPI_STATUS_IGNORE));
            CHECK(holds(in, LONG, (unsigned)from));
            fill(out, LONG, 2);
            OK(MPI_Send(&words[0], 1, MPI_INT, from, 3, MPI_COMM_WORLD));
            OK(MPI_Send(out, LONG, MPI_BYTE, from, 4, MPI_COMM_WORLD));
            OK(MPI_Recv(&words[1], 1, MPI_INT, from, 5, MPI_COMM_WORLD, MPI_STATUS_IGNORE));
        }
    }
    return end();
}
