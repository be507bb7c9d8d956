/* Messages of 300 MiB, blocking, and both ways at once; and a count past 2^31 in a message of 2.2 GiB.
 * ranks: 2
 * timeout: 180
 */
#include "world.h"

enum { BYTES = 300 << 20, STRIDE = 4093 };

static void mark(unsigned char *buffer, size_t bytes, unsigned seed)
{
    for (size_t i = 0; i < bytes; i += STRIDE)
        buffer[i] = pattern(i, seed);
    buffer[bytes - 1] = (unsigned char)seed;
}

static int marked(const unsigned char *buffer, size_t bytes, unsigned seed)
{
    for (size_t i = 0; i < bytes - 1; i += STRIDE)
        if (buffer[i] != pattern(i, seed))
            return 0;
    return buffer[bytes - 1] == (unsigned char)seed;
}

static void blocking(unsigned char *out, unsigned char *in)
{
    if (rank == 0) {
        mark(out, BYTES, 1);
        OK(MPI_Send(out, BYTES, MPI_BYTE, 1, 1, MPI_COMM_WORLD));
    } else {
        OK(MPI_Recv(in, BYTES, MPI_BYTE, 0, 1, MPI_COMM_WORLD, MPI_STATUS_IGNORE));
        CHECK(marked(in, BYTES, 1));
    }
}

static void both_ways(unsigned char *out, unsigned char *in)
{
    mark(out, BYTES, (unsigned)rank + 2);
    OK(MPI_Sendrecv(out, BYTES, MPI_BYTE, 1 - rank, 2, in, BYTES, MPI_BYTE, 1 - rank, 2, MPI_COMM_WORLD, MPI_STATUS_IGNORE));
    CHECK(marked(in, BYTES, 3 - (unsigned)rank));
}

static void past_an_int(void)
{
    const MPI_Count bytes = ((MPI_Count)1 << 31) + 123456789;
    unsigned char *buffer = malloc((size_t)bytes);
    CHECK(buffer != NULL);
    if (rank == 0) {
        mark(buffer, (size_t)bytes, 9);
        OK(MPI_Send_c(buffer, bytes, MPI_BYTE, 1, 3, MPI_COMM_WORLD));
    } else {
        MPI_Status status;
        MPI_Count count;
        int small;
        OK(MPI_Recv_c(buffer, bytes, MPI_BYTE, 0, 3, MPI_COMM_WORLD, &status));
        OK(MPI_Get_count_c(&status, MPI_BYTE, &count));
        OK(MPI_Get_count(&status, MPI_BYTE, &small));
        CHECK(count == bytes && small == MPI_UNDEFINED && marked(buffer, (size_t)bytes, 9));
    }
    free(buffer);
}

int main(int argc, char **argv)
{
    begin(&argc, &argv);
    unsigned char *out = memory_of(BYTES), *in = memory_of(BYTES);
    blocking(out, in);
    both_ways(out, in);
    free(out);
    free(in);
    past_an_int();
    return end();
}
