/* Sendrecv and Sendrecv_replace round a ring and in pairs, long ones too: no deadlock.
 * ranks: 1 2 3 8
 */
#include "counts.h"

int main(int argc, char **argv)
{
    begin(&argc, &argv);
    int to = (rank + 1) % size, from = (rank + size - 1) % size;
    static const int sizes[] = {0, 1, 100, 5000, 100000, 2000000};
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        count_t bytes = sizes[i], count;
        unsigned char *out = memory_of((size_t)bytes), *in = memory_of((size_t)bytes);
        MPI_Status status;
        fill(out, (size_t)bytes, (unsigned)rank);
        OK(MPI_Sendrecv(out, bytes, MPI_BYTE, to, 1, in, bytes, MPI_BYTE, from, MPI_ANY_TAG, MPI_COMM_WORLD, &status));
        CHECK(holds(in, (size_t)bytes, (unsigned)from) && status.MPI_TAG == 1);

        /* As many times round as there are ranks: everything is home again. */
        for (int step = 0; step < size; step++) {
            OK(MPI_Sendrecv_replace(out, bytes, MPI_BYTE, to, 2, from, 2, MPI_COMM_WORLD, &status));
            OK(MPI_Get_count(&status, MPI_BYTE, &count));
            CHECK(count == bytes && status.MPI_SOURCE == from);
        }
        CHECK(holds(out, (size_t)bytes, (unsigned)rank));

        MPI_Request requests[2]; /* nonblocking */
        fill(out, (size_t)bytes, (unsigned)rank + 50);
        OK(MPI_Isendrecv(out, bytes, MPI_BYTE, to, 3, in, bytes, MPI_BYTE, from, 3, MPI_COMM_WORLD, &requests[0]));
        OK(MPI_Wait(&requests[0], &status));
        CHECK(holds(in, (size_t)bytes, (unsigned)from + 50));
        OK(MPI_Isendrecv_replace(out, bytes, MPI_BYTE, to, 4, from, 4, MPI_COMM_WORLD, &requests[1]));
        OK(MPI_Wait(&requests[1], &status));
        CHECK(holds(out, (size_t)bytes, (unsigned)from + 50));
        free(out);
        free(in);
    }
    return end();
}
