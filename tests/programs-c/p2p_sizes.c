/* Every size where a protocol may change, expected and unexpected, aligned and not; nothing past the end is touched.
 * ranks: 2
 * timeout: 120
 */
#include "world.h"

enum { LIMIT = 9 << 20, GUARD = 64, TAG = 1, TAG_GO = 2 };

int main(int argc, char **argv)
{
    begin(&argc, &argv);
    unsigned char *memory = memory_of(LIMIT + 2 * GUARD);
    EACH_SIZE (bytes, LIMIT)
        for (int shift = 0; shift < 4; shift += 3)
            for (int expected = 0; expected < 2; expected++) {
                unsigned char *buffer = memory + GUARD / 2 + shift;
                MPI_Status status;
                int count;
                if (rank == 0) {
                    fill(buffer, (size_t)bytes, (unsigned)bytes);
                    if (expected)
                        OK(MPI_Recv(NULL, 0, MPI_BYTE, 1, TAG_GO, MPI_COMM_WORLD, MPI_STATUS_IGNORE));
                    OK(MPI_Send(buffer, bytes, MPI_BYTE, 1, TAG, MPI_COMM_WORLD));
                    CHECK(holds(buffer, (size_t)bytes, (unsigned)bytes));
                    OK(MPI_Recv(buffer, bytes, MPI_BYTE, 1, TAG, MPI_COMM_WORLD, MPI_STATUS_IGNORE));
                    CHECK(holds(buffer, (size_t)bytes, (unsigned)bytes + 1));
                } else {
                    MPI_Request request;
                    memset(memory, 0xee, (size_t)bytes + 2 * GUARD);
                    if (!expected)
                        OK(MPI_Probe(0, TAG, MPI_COMM_WORLD, MPI_STATUS_IGNORE));
                    OK(MPI_Irecv(buffer, bytes, MPI_BYTE, 0, TAG, MPI_COMM_WORLD, &request));
                    if (expected)
                        OK(MPI_Send(NULL, 0, MPI_BYTE, 0, TAG_GO, MPI_COMM_WORLD));
                    OK(MPI_Wait(&request, &status));
                    OK(MPI_Get_count(&status, MPI_BYTE, &count));
                    CHECK(count == bytes && holds(buffer, (size_t)bytes, (unsigned)bytes));
                    CHECK(all_bytes(memory, GUARD / 2 + (size_t)shift, 0xee) && all_bytes(buffer + bytes, GUARD / 2, 0xee));
                    fill(buffer, (size_t)bytes, (unsigned)bytes + 1);
                    OK(MPI_Send(buffer, bytes, MPI_BYTE, 0, TAG, MPI_COMM_WORLD));
                }
            }
    free(memory);
    return end();
}
