/* Messages between two processes on one communicator do not overtake each other, whatever their sizes and modes.
 * ranks: 2 4
 */
#include "world.h"

enum { MESSAGES = 400 };

static int size_of(int i)
{
    static const int sizes[] = {4, 20000, 64, 300000, 4096, 8, 70000, 1000};
    return sizes[i % 8];
}

static void one_tag(char *buffer)
{
    if (rank == 0) {
        for (int i = 0; i < MESSAGES; i++) {
            memcpy(buffer, &i, sizeof i);
            if (i % 5 == 0)
                OK(MPI_Ssend(buffer, size_of(i), MPI_BYTE, 1, 1, MPI_COMM_WORLD));
            else
                OK(MPI_Send(buffer, size_of(i), MPI_BYTE, 1, 1, MPI_COMM_WORLD));
        }
    } else if (rank == 1) {
        for (int i = 0; i < MESSAGES; i++) {
            MPI_Status status;
            int count, number;
            OK(MPI_Recv(buffer, 300000, MPI_BYTE, i % 2 ? MPI_ANY_SOURCE : 0, i % 3 ? MPI_ANY_TAG : 1, MPI_COMM_WORLD, &status));
            OK(MPI_Get_count(&status, MPI_BYTE, &count));
            memcpy(&number, buffer, sizeof number);
            CHECK(number == i && count == size_of(i));
        }
    }
}

/* Receives posted before, in the order of posting, take the messages in the order of sending. */
static void posted(void)
{
    static int numbers[MESSAGES];
    static MPI_Request requests[MESSAGES];
    if (rank == 1)
        for (int i = 0; i < MESSAGES; i++)
            OK(MPI_Irecv(&numbers[i], 1, MPI_INT, i % 4 == 1 ? MPI_ANY_SOURCE : 0, i % 4 == 2 ? MPI_ANY_TAG : 2, MPI_COMM_WORLD,
                         &requests[i]));
    OK(MPI_Barrier(MPI_COMM_WORLD));
    if (rank == 0)
        for (int i = 0; i < MESSAGES; i++)
            OK(MPI_Send(&i, 1, MPI_INT, 1, 2, MPI_COMM_WORLD));
    if (rank == 1) {
        OK(MPI_Waitall(MESSAGES, requests, MPI_STATUSES_IGNORE));
        for (int i = 0; i < MESSAGES; i++)
            CHECK(numbers[i] == i);
    }
}

/* Tags let a receiver pick a later message first; within one tag the order stays. */
static void picked(void)
{
    enum { TAGS = 5, EACH = 20 };
    static int numbers[TAGS * EACH];
    static MPI_Request requests[TAGS * EACH];
    if (rank == 0) {
        for (int i = 0; i < TAGS * EACH; i++) {
            numbers[i] = i;
            OK(MPI_Isend(&numbers[i], 1, MPI_INT, 1, 10 + i % TAGS, MPI_COMM_WORLD, &requests[i]));
        }
        OK(MPI_Waitall(TAGS * EACH, requests, MPI_STATUSES_IGNORE));
    }
    if (rank == 1)
        for (int tag = TAGS - 1; tag >= 0; tag--)
            for (int i = 0; i < EACH; i++) {
                int number;
                OK(MPI_Recv(&number, 1, MPI_INT, 0, 10 + tag, MPI_COMM_WORLD, MPI_STATUS_IGNORE));
                CHECK(number == i * TAGS + tag);
            }
}

/* A short message sent after a long one, whose transfer takes its time, is still received after it. */
static void short_after_long(char *buffer)
{
    MPI_Request requests[2];
    int number = 0;
    if (rank == 0) {
        OK(MPI_Isend(buffer, 300000, MPI_BYTE, 1, 3, MPI_COMM_WORLD, &requests[0]));
        OK(MPI_Isend(&number, 1, MPI_INT, 1, 3, MPI_COMM_WORLD, &requests[1]));
        OK(MPI_Waitall(2, requests, MPI_STATUSES_IGNORE));
    } else if (rank == 1) {
        MPI_Status status;
        int count;
        OK(MPI_Recv(buffer, 300000, MPI_BYTE, 0, MPI_ANY_TAG, MPI_COMM_WORLD, &status));
        OK(MPI_Get_count(&status, MPI_BYTE, &count));
        CHECK(count == 300000);
        OK(MPI_Recv(buffer, 300000, MPI_BYTE, 0, MPI_ANY_TAG, MPI_COMM_WORLD, &status));
        OK(MPI_Get_count(&status, MPI_BYTE, &count));
        CHECK(count == (int)sizeof number);
    }
}

/* Each source keeps its own order at a receiver that takes from any. */
static void many_sources(void)
{
    if (rank != 0) {
        for (int i = 0; i < MESSAGES; i++)
            OK(MPI_Send(&i, 1, MPI_INT, 0, 4, MPI_COMM_WORLD));
        return;
    }
    int next[64] = {0};
    for (int i = 0; i < MESSAGES * (size - 1); i++) {
        MPI_Status status;
        int number;
        OK(MPI_Recv(&number, 1, MPI_INT, MPI_ANY_SOURCE, 4, MPI_COMM_WORLD, &status));
        CHECK(number == next[status.MPI_SOURCE]++);
    }
}

int main(int argc, char **argv)
{
    begin(&argc, &argv);
    char *buffer = memory_of(300000);
    one_tag(buffer);
    posted();
    picked();
    short_after_long(buffer);
    many_sources();
    free(buffer);
    return end();
}
