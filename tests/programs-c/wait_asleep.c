/* Ranks that have slept long in every kind of blocking call are woken by a message.
 * ranks: 2 5
 */
#include "world.h"

int main(int argc, char **argv)
{
    begin(&argc, &argv);
    for (int round = 0; round < 4; round++) {
        int value = -1, index, count, indices[2];
        MPI_Request requests[2];
        if (rank == 0) {
            for (int kind = 0; kind < 6; kind++) {
                nap_ms(40);
                for (int peer = 1; peer < size; peer++)
                    OK(MPI_Send(&kind, 1, MPI_INT, peer, kind, MPI_COMM_WORLD));
            }
            nap_ms(40);
        } else {
            OK(MPI_Recv(&value, 1, MPI_INT, 0, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE));
            CHECK(value == 0);
            OK(MPI_Probe(MPI_ANY_SOURCE, 1, MPI_COMM_WORLD, MPI_STATUS_IGNORE));
            OK(MPI_Recv(&value, 1, MPI_INT, 0, 1, MPI_COMM_WORLD, MPI_STATUS_IGNORE));
            CHECK(value == 1);
            requests[1] = MPI_REQUEST_NULL;
            OK(MPI_Irecv(&value, 1, MPI_INT, 0, 2, MPI_COMM_WORLD, &requests[0]));
            OK(MPI_Waitany(2, requests, &index, MPI_STATUS_IGNORE));
            CHECK(index == 0 && value == 2);
            OK(MPI_Irecv(&value, 1, MPI_INT, 0, 3, MPI_COMM_WORLD, &requests[0]));
            OK(MPI_Waitsome(2, requests, &count, indices, MPI_STATUSES_IGNORE));
            CHECK(count == 1 && value == 3);
            OK(MPI_Irecv(&value, 1, MPI_INT, 0, 4, MPI_COMM_WORLD, &requests[0]));
            OK(MPI_Waitall(2, requests, MPI_STATUSES_IGNORE));
            CHECK(value == 4);
            MPI_Message message;
            OK(MPI_Mprobe(0, 5, MPI_COMM_WORLD, &message, MPI_STATUS_IGNORE));
            OK(MPI_Mrecv(&value, 1, MPI_INT, &message, MPI_STATUS_IGNORE));
            CHECK(value == 5);
        }
        OK(MPI_Barrier(MPI_COMM_WORLD)); /* rank 0 is the last to come */
        if (rank != 0)
            nap_ms(30);
        int sum, one = 1;
        OK(MPI_Allreduce(&one, &sum, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD)); /* rank 0 is the first */
        CHECK(sum == size);
    }
    return end();
}
