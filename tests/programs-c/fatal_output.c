/* What a rank has printed but not flushed is there after a fatal error too.
 * ranks: 1 2
 * status: nonzero
 * output: printed before the error
 */
#include "check.h"

int main(int argc, char **argv) {
    int value = 0;
    static char buffer[4096];
    OK(MPI_Init(&argc, &argv));
    setvbuf(stdout, buffer, _IOFBF, sizeof buffer);
    printf("printed before the error");
    MPI_Send(&value, 1, MPI_INT, 4000, 0, MPI_COMM_WORLD);
    return 0;
}
