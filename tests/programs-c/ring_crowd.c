/* A token goes round many more ranks than there are cores, many times.
 * ranks: 16 48
 */
#include "world.h"

int main(int argc, char **argv)
{
    begin(&argc, &argv);
    int token = 0, laps = 2000 / size, to = (rank + 1) % size, from = (rank + size - 1) % size;
    for (int lap = 0; lap < laps; lap++) {
        if (rank == 0) {
            token++;
            OK(MPI_Send(&token, 1, MPI_INT, to, 0, MPI_COMM_WORLD));
            OK(MPI_Recv(&token, 1, MPI_INT, from, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE));
            CHECK(token == (lap + 1) * size);
        } else {
            OK(MPI_Recv(&token, 1, MPI_INT, from, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE));
            CHECK(token == lap * size + rank);
            token++;
            OK(MPI_Send(&token, 1, MPI_INT, to, 0, MPI_COMM_WORLD));
        }
    }
    return end();
}
