/* A short job in which ranks wait for each other in every way: busy [ROUNDS]. */
#include "../programs-c/world.h"

enum { LONG = 256 << 10, WINDOW = 16 };

int main(int argc, char **argv)
{
    static unsigned char out[LONG], in[LONG];
    MPI_Request requests[2 * WINDOW];
    MPI_Comm own;
    begin_threaded(&argc, &argv, MPI_THREAD_MULTIPLE);
    int rounds = argc > 1 ? atoi(argv[1]) : 20, next = (rank + 1) % size, last = (rank + size - 1) % size, sum;
    OK(MPI_Comm_dup(MPI_COMM_WORLD, &own));
    for (int i = 0; i < rounds; i++) {
        OK(MPI_Barrier(own));
        OK(MPI_Allreduce(&rank, &sum, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD));
        CHECK(sum == size * (size - 1) / 2);
        OK(MPI_Sendrecv(out, 8, MPI_BYTE, next, 1, in, 8, MPI_BYTE, last, 1, own, MPI_STATUS_IGNORE));
        for (int k = 0; k < WINDOW; k++) {
            OK(MPI_Irecv(in, 64, MPI_BYTE, last, 2, MPI_COMM_WORLD, &requests[k]));
            OK(MPI_Issend(out, 64, MPI_BYTE, next, 2, MPI_COMM_WORLD, &requests[WINDOW + k]));
        }
        OK(MPI_Waitall(2 * WINDOW, requests, MPI_STATUSES_IGNORE));
        if (i % 4 == 0) {
            fill(out, LONG, (unsigned)rank);
            OK(MPI_Sendrecv(out, LONG, MPI_BYTE, next, 3, in, LONG, MPI_BYTE, last, 3, own, MPI_STATUS_IGNORE));
            CHECK(holds(in, LONG, (unsigned)last));
        }
    }
    OK(MPI_Comm_free(&own));
    return end();
}
