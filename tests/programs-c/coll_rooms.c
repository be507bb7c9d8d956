/* Many communicators at once that all have had enough collectives to get room of their own: the first ones have it, the others' go by messages, and
 * the memory that messages need stays free. Then all go, and others come.
 * ranks: 2 4
 * timeout: 120
 */
#include "world.h"

enum { COMMS = 24, CALLS = 12, BYTES = 16 << 10, GENERATIONS = 3 };

static unsigned char data[BYTES];

int main(int argc, char **argv)
{
    begin(&argc, &argv);
    MPI_Comm comms[COMMS];
    for (int generation = 0; generation < GENERATIONS; generation++) {
        for (int i = 0; i < COMMS; i++) {
            OK(MPI_Comm_dup(MPI_COMM_WORLD, &comms[i]));
            for (int call = 0; call < CALLS; call++) {
                /* At first nobody says anything to the first rank, whose memory has all rooms. */
                int root = generation == 0 ? 0 : call % size;
                unsigned seed = (unsigned)(1000 * generation + 20 * i + call);
                if (rank == root)
                    fill(data, BYTES, seed);
                OK(MPI_Bcast(data, BYTES, MPI_BYTE, root, comms[i]));
                CHECK(holds(data, BYTES, seed));
            }
            if (generation == 0)
                continue;
            MPI_Request requests[CALLS];
            int sums[CALLS], ones[CALLS];
            for (int call = 0; call < CALLS; call++) {
                ones[call] = call;
                OK(MPI_Iallreduce(&ones[call], &sums[call], 1, MPI_INT, MPI_SUM, comms[i], &requests[call]));
            }
            OK(MPI_Waitall(CALLS, requests, MPI_STATUSES_IGNORE));
            for (int call = 0; call < CALLS; call++)
                CHECK(sums[call] == call * size);
        }
        for (int i = 0; i < COMMS; i++)
            OK(MPI_Comm_free(&comms[i]));
    }
    /* What all ranks say to each other needs rings. */
    for (int other = 0; other < size; other++)
        OK(MPI_Sendrecv(&rank, 1, MPI_INT, other, 1, data, 1, MPI_INT, other, 1, MPI_COMM_WORLD, MPI_STATUS_IGNORE));
    return end();
}
