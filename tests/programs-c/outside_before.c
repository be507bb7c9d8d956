/* An error before MPI_Init names rank and function, and ends the program.
 * ranks: 2
 * status: nonzero
 * output: rank 1: MPI_Comm_size failed: .*MPI is not initialized
 */
#include "check.h"

int main(void)
{
    int size;
    /* Rank 0 makes no mistake; the launcher ends it. */
    if (getenv("WHIMBREL_RANK") && strcmp(getenv("WHIMBREL_RANK"), "1") == 0)
        MPI_Comm_size(MPI_COMM_WORLD, &size);
    for (;;)
        if (MPI_Wtime() < 0)
            return 0;
}
