/* A rank that has no memory for its part of a long broadcast of a type with gaps leaves it with an error; the others get one, too, as soon as it is seen in another
 * collective, instead of waiting for it.
 * ranks: 2 3
 * env: WHIMBREL_COSTS=off
 * timeout: 120
 */
#include "limit.h"
#include "world.h"

enum { ELEMENTS = 8 << 20 };

int main(int argc, char **argv)
{
    begin(&argc, &argv);
    MPI_Datatype gaps;
    OK(MPI_Type_vector(ELEMENTS, 1, 2, MPI_INT, &gaps));
    OK(MPI_Type_commit(&gaps));
    int *data = memory_of(2L * ELEMENTS * sizeof *data);
    for (int root = 0; root < 2; root++) {
        MPI_Comm comm;
        OK(MPI_Comm_dup(MPI_COMM_WORLD, &comm));
        OK(MPI_Bcast(data, 1 << 18, MPI_INT, 0, comm));
        OK(MPI_Barrier(comm));
        if (rank == 1)
            limit(1 << 20);
        int code = MPI_Bcast(data, 1, gaps, root, comm);
        if (rank == 1) {
            limit(-1);
            no_memory(code, "MPI_Bcast", "");
        } else if (root == 1 || size == 2) {
            char text[MPI_MAX_ERROR_STRING];
            int length;
            OK(MPI_Error_string(code, text, &length));
            printf("rank %d: %s\n", rank, text);
            CHECK(code != MPI_SUCCESS && strstr(text, "rank 1"));
        }
        OK(MPI_Comm_free(&comm));
    }
    return end();
}
