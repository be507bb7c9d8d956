/* Blocking sends of many short messages end although their receiver first waits for the last of them, and it gets each with its own contents,
 * in whatever order it asks for them.
 * ranks: 2
 */
#include "world.h"

enum { MANY = 20000 };

int main(int argc, char **argv)
{
    long value[2];
    begin(&argc, &argv);
    for (int step = -1; step <= 1; step++) {
        for (int tag = 0; rank == 0 && tag <= MANY; tag++) {
            value[0] = tag, value[1] = ~tag;
            OK(MPI_Send(value, 2, MPI_LONG, 1, tag, MPI_COMM_WORLD));
        }
        if (rank == 1) {
            OK(MPI_Recv(value, 2, MPI_LONG, 0, MANY, MPI_COMM_WORLD, MPI_STATUS_IGNORE));
            for (int each = 0; each < MANY; each++) {
                int tag = step < 0 ? MANY - 1 - each : step > 0 ? each : (int)(each * 7919L % MANY);
                OK(MPI_Recv(value, 2, MPI_LONG, 0, tag, MPI_COMM_WORLD, MPI_STATUS_IGNORE));
                CHECK(value[0] == tag && value[1] == ~tag);
            }
        }
        OK(MPI_Barrier(MPI_COMM_WORLD));
    }
    return end();
}
