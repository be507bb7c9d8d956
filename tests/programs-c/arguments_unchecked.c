/* Without checks of arguments, what a program gets wrong and the library need not know is taken as it is.
 * ranks: 1
 * env: WHIMBREL_ARGUMENT_CHECKS=off
 */
#include "world.h"

int main(int argc, char **argv)
{
    int out[2] = {4, 5}, in[2] = {0, 0};
    MPI_Datatype pair;
    begin(&argc, &argv);
    OK(MPI_Type_contiguous(2, MPI_INT, &pair));
    /* Not committed. */
    OK(MPI_Sendrecv(out, 1, pair, 0, 0, in, 1, pair, 0, 0, MPI_COMM_SELF, MPI_STATUS_IGNORE));
    CHECK(in[0] == 4 && in[1] == 5);
    OK(MPI_Type_free(&pair));
    /* What would harm others or has no meaning at all is an error still. */
    FAILS(MPI_ERR_RANK, MPI_Send(out, 1, MPI_INT, 1, 0, MPI_COMM_SELF));
    FAILS(MPI_ERR_TAG, MPI_Send(out, 1, MPI_INT, 0, -5, MPI_COMM_SELF));
    FAILS(MPI_ERR_COUNT, MPI_Send(out, -1, MPI_INT, 0, 0, MPI_COMM_SELF));
    FAILS(MPI_ERR_COMM, MPI_Send(out, 1, MPI_INT, 0, 0, MPI_COMM_NULL));
    return end();
}
