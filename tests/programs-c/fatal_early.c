/* A fatal error before MPI_Init names the rank and the function.
 * ranks: 2
 * status: nonzero
 * output: rank 1: MPI_Send failed
 */
#include "check.h"
#include <string.h>

int main(int argc, char **argv) {
    int value = 0;
    const char *rank = getenv("WHIMBREL_RANK");
    if (rank && !strcmp(rank, "1"))
        MPI_Send(&value, 1, MPI_INT, 0, 0, MPI_COMM_WORLD);
    OK(MPI_Init(&argc, &argv));
    OK(MPI_Finalize());
    return 0;
}
