/* Ranks that compute for longer than silence is borne answer all the same, and transfers between them go on meanwhile.
 * ranks: 2
 * env: WHIMBREL_FABRIC=udp WHIMBREL_PEER_TIMEOUT=500
 */
#include "../programs-c/world.h"

enum { BYTES = 8 << 20 };

static void compute(double seconds)
{
    double end = MPI_Wtime() + seconds;
    while (MPI_Wtime() < end)
        ;
}

int main(int argc, char **argv)
{
    begin(&argc, &argv);
    unsigned char *buffer = memory_of(BYTES);
    MPI_Request request;
    int done;
    if (rank == 0) {
        fill(buffer, BYTES, 7);
        OK(MPI_Isend(buffer, BYTES, MPI_BYTE, 1, 1, MPI_COMM_WORLD, &request));
    } else
        OK(MPI_Irecv(buffer, BYTES, MPI_BYTE, 0, 1, MPI_COMM_WORLD, &request));
    compute(2.0);
    /* Nobody has called MPI meanwhile; the first look finds it done, or a busy machine ends it soon. */
    OK(MPI_Test(&request, &done, MPI_STATUS_IGNORE));
    if (!done)
        OK(MPI_Wait(&request, MPI_STATUS_IGNORE));
    CHECK(rank == 0 || holds(buffer, BYTES, 7));
    /* One waits for long, the other is away for long. */
    int word = rank;
    if (rank == 0) {
        compute(2.0);
        OK(MPI_Send(&word, 1, MPI_INT, 1, 2, MPI_COMM_WORLD));
    } else
        OK(MPI_Recv(&word, 1, MPI_INT, 0, 2, MPI_COMM_WORLD, MPI_STATUS_IGNORE));
    free(buffer);
    return end();
}
