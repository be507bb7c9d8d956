/* No memory is left for copies of long messages: the calls that need one give MPI_ERR_NO_MEM, and the others go on.
 * ranks: 1 2
 * env: WHIMBREL_COSTS=off
 * timeout: 60
 */
#include "world.h"
#include "limit.h"

enum { LONG = 64 << 20, SPARE = 24 << 20 };

static unsigned char out[LONG], in[LONG];

int main(int argc, char **argv)
{
    begin(&argc, &argv);
    int next = (rank + 1) % size, last = (rank + size - 1) % size, value = -1, bytes;
    MPI_Request request;
    void *back;
    /* All that MPI wants for itself is there. */
    OK(MPI_Sendrecv(out, LONG, MPI_BYTE, next, 1, in, LONG, MPI_BYTE, last, 1, MPI_COMM_WORLD, MPI_STATUS_IGNORE));
    OK(MPI_Buffer_attach(MPI_BUFFER_AUTOMATIC, 0));
    limit(SPARE);
    FAILS(MPI_ERR_NO_MEM, MPI_Sendrecv_replace(out, LONG, MPI_BYTE, next, 2, last, 2, MPI_COMM_WORLD, MPI_STATUS_IGNORE));
    FAILS(MPI_ERR_NO_MEM, MPI_Isendrecv_replace(out, LONG, MPI_BYTE, next, 2, last, 2, MPI_COMM_WORLD, &request));
    FAILS(MPI_ERR_NO_MEM, MPI_Bsend(out, LONG, MPI_BYTE, next, 2, MPI_COMM_WORLD));
    FAILS(MPI_ERR_NO_MEM, MPI_Ibsend(out, LONG, MPI_BYTE, next, 2, MPI_COMM_WORLD, &request));
    /* What needs no copy goes on, as do short ones. */
    fill(out, LONG, (unsigned)rank);
    OK(MPI_Sendrecv(out, LONG, MPI_BYTE, next, 3, in, LONG, MPI_BYTE, last, 3, MPI_COMM_WORLD, MPI_STATUS_IGNORE));
    CHECK(holds(in, LONG, (unsigned)last));
    value = rank;
    OK(MPI_Sendrecv_replace(&value, 1, MPI_INT, next, 4, last, 4, MPI_COMM_WORLD, MPI_STATUS_IGNORE));
    CHECK(value == last);
    limit(-1);
    OK(MPI_Sendrecv_replace(out, LONG, MPI_BYTE, next, 5, last, 5, MPI_COMM_WORLD, MPI_STATUS_IGNORE));
    CHECK(holds(out, LONG, (unsigned)last));
    OK(MPI_Buffer_detach(&back, &bytes));
    return end();
}
