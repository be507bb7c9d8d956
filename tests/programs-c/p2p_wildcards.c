/* A message goes to the earliest posted receive that it matches, wildcard or not; the status tells what came.
 * ranks: 2 3 5
 */
#include "world.h"

static void earliest_posted(void)
{
    int values[5] = {0};
    MPI_Request requests[5];
    MPI_Status statuses[5];
    if (rank == 0) {
        OK(MPI_Irecv(&values[0], 1, MPI_INT, 1, 7, MPI_COMM_WORLD, &requests[0]));
        OK(MPI_Irecv(&values[1], 1, MPI_INT, MPI_ANY_SOURCE, 8, MPI_COMM_WORLD, &requests[1]));
        OK(MPI_Irecv(&values[2], 1, MPI_INT, 1, MPI_ANY_TAG, MPI_COMM_WORLD, &requests[2]));
        OK(MPI_Irecv(&values[3], 1, MPI_INT, 1, 8, MPI_COMM_WORLD, &requests[3]));
        OK(MPI_Irecv(&values[4], 1, MPI_INT, MPI_ANY_SOURCE, MPI_ANY_TAG, MPI_COMM_WORLD, &requests[4]));
    }
    OK(MPI_Barrier(MPI_COMM_WORLD));
    if (rank == 1) {
        static const int tags[] = {8, 8, 8, 7, 9};
        for (int i = 0; i < 5; i++)
            OK(MPI_Send(&i, 1, MPI_INT, 0, tags[i], MPI_COMM_WORLD));
    }
    if (rank == 0) {
        static const int expected[] = {3, 0, 1, 2, 4}, tags[] = {7, 8, 8, 8, 9};
        OK(MPI_Waitall(5, requests, statuses));
        for (int i = 0; i < 5; i++)
            CHECK(values[i] == expected[i] && statuses[i].MPI_TAG == tags[i] && statuses[i].MPI_SOURCE == 1);
    }
}

/* Unexpected messages are looked through in the order of arrival. */
static void earliest_arrived(void)
{
    int numbers[6];
    MPI_Request requests[6];
    if (rank == 1)
        for (int i = 0; i < 6; i++) {
            numbers[i] = i;
            OK(MPI_Isend(&numbers[i], 1, MPI_INT, 0, 20 + i % 3, MPI_COMM_WORLD, &requests[i]));
        }
    OK(MPI_Barrier(MPI_COMM_WORLD));
    if (rank == 1)
        OK(MPI_Waitall(6, requests, MPI_STATUSES_IGNORE));
    if (rank == 0) {
        static const int sources[] = {1, MPI_ANY_SOURCE, MPI_ANY_SOURCE, 1, 1, MPI_ANY_SOURCE};
        static const int tags[] = {21, MPI_ANY_TAG, 22, MPI_ANY_TAG, MPI_ANY_TAG, MPI_ANY_TAG};
        static const int expected[] = {1, 0, 2, 3, 4, 5};
        for (int i = 0; i < 6; i++) {
            int value;
            MPI_Status status;
            OK(MPI_Recv(&value, 1, MPI_INT, sources[i], tags[i], MPI_COMM_WORLD, &status));
            CHECK(value == expected[i] && status.MPI_TAG == 20 + value % 3);
        }
    }
}

static void from_everybody(void)
{
    enum { ROUNDS = 30 };
    if (rank != 0) {
        for (int i = 0; i < ROUNDS; i++) {
            int what[2] = {rank, i};
            OK(MPI_Send(what, 2, MPI_INT, 0, 100 * rank + i, MPI_COMM_WORLD));
        }
        return;
    }
    int seen[64] = {0};
    for (int i = 0; i < ROUNDS * (size - 1); i++) {
        int what[2], count;
        MPI_Status status;
        OK(MPI_Recv(what, 2, MPI_INT, MPI_ANY_SOURCE, MPI_ANY_TAG, MPI_COMM_WORLD, &status));
        CHECK(status.MPI_SOURCE == what[0] && status.MPI_TAG == 100 * what[0] + what[1]);
        CHECK(what[1] == seen[what[0]]++);
        OK(MPI_Get_count(&status, MPI_INT, &count));
        CHECK(count == 2);
    }
}

int main(int argc, char **argv)
{
    begin(&argc, &argv);
    earliest_posted();
    OK(MPI_Barrier(MPI_COMM_WORLD));
    earliest_arrived();
    OK(MPI_Barrier(MPI_COMM_WORLD));
    from_everybody();
    OK(MPI_Barrier(MPI_COMM_WORLD));
    int *bound, flag, value = 5, got = 0;
    OK(MPI_Comm_get_attr(MPI_COMM_WORLD, MPI_TAG_UB, &bound, &flag));
    CHECK(flag && *bound >= 32767);
    int to = (rank + 1) % size, from = (rank + size - 1) % size;
    OK(MPI_Sendrecv(&value, 1, MPI_INT, to, *bound, &got, 1, MPI_INT, from, *bound, MPI_COMM_WORLD, MPI_STATUS_IGNORE));
    CHECK(got == 5);
    return end();
}
