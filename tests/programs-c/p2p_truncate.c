/* A message longer than its receive is MPI_ERR_TRUNCATE, writes nothing past the buffer, and harms no later message.
 * ranks: 2
 */
#include "world.h"

enum { GUARD = 4096, TAG = 1, TAG_GO = 2 };

static void once(int sent_bytes, int room, int expected, int matched)
{
    unsigned char *buffer = memory_of((size_t)sent_bytes + GUARD);
    if (rank == 0) {
        fill(buffer, (size_t)sent_bytes, 1);
        if (expected)
            OK(MPI_Recv(NULL, 0, MPI_BYTE, 1, TAG_GO, MPI_COMM_WORLD, MPI_STATUS_IGNORE));
        OK(MPI_Send(buffer, sent_bytes, MPI_BYTE, 1, TAG, MPI_COMM_WORLD));
        OK(MPI_Send(&sent_bytes, 1, MPI_INT, 1, TAG, MPI_COMM_WORLD));
    } else {
        int number = 0;
        MPI_Status status;
        memset(buffer, 0xee, (size_t)sent_bytes + GUARD);
        if (expected) {
            MPI_Request request;
            OK(MPI_Irecv(buffer, room, MPI_BYTE, 0, TAG, MPI_COMM_WORLD, &request));
            OK(MPI_Send(NULL, 0, MPI_BYTE, 0, TAG_GO, MPI_COMM_WORLD));
            FAILS(MPI_ERR_TRUNCATE, MPI_Wait(&request, &status));
            CHECK(request == MPI_REQUEST_NULL);
        } else if (matched) {
            MPI_Message message;
            OK(MPI_Mprobe(0, TAG, MPI_COMM_WORLD, &message, MPI_STATUS_IGNORE));
            FAILS(MPI_ERR_TRUNCATE, MPI_Mrecv(buffer, room, MPI_BYTE, &message, &status));
        } else {
            OK(MPI_Probe(0, TAG, MPI_COMM_WORLD, MPI_STATUS_IGNORE));
            FAILS(MPI_ERR_TRUNCATE, MPI_Recv(buffer, room, MPI_BYTE, 0, TAG, MPI_COMM_WORLD, &status));
        }
        CHECK(status.MPI_SOURCE == 0 && status.MPI_TAG == TAG);
        CHECK(all_bytes(buffer + room, (size_t)(sent_bytes - room) + GUARD, 0xee));
        OK(MPI_Recv(&number, 1, MPI_INT, 0, TAG, MPI_COMM_WORLD, MPI_STATUS_IGNORE));
        CHECK(number == sent_bytes);
    }
    free(buffer);
}

int main(int argc, char **argv)
{
    begin(&argc, &argv);
    static const int sizes[] = {1, 8, 100, 4096, 9000, 70000, 1 << 20};
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++)
        for (int expected = 0; expected < 2; expected++)
            for (int matched = 0; matched < 2 - expected; matched++) {
                once(sizes[i], 0, expected, matched);
                once(sizes[i], sizes[i] / 2, expected, matched);
                once(sizes[i], sizes[i] - 1, expected, matched);
            }
    /* Shorter than the receive is fine. */
    unsigned char buffer[100];
    MPI_Status status;
    int count;
    memset(buffer, 0xee, sizeof buffer);
    if (rank == 0)
        OK(MPI_Send("abc", 3, MPI_CHAR, 1, TAG, MPI_COMM_WORLD));
    else {
        OK(MPI_Recv(buffer, 100, MPI_CHAR, 0, TAG, MPI_COMM_WORLD, &status));
        OK(MPI_Get_count(&status, MPI_CHAR, &count));
        CHECK(count == 3 && memcmp(buffer, "abc", 3) == 0 && all_bytes(buffer + 3, 97, 0xee));
    }
    return end();
}
