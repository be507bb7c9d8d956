/* A limit on the size of files holds for shared memory too: the program ends with one line that says so, not by a signal.
 * ranks: 1 2
 * status: nonzero
 * output: MPI_ERR_NO_MEM: .*no shared-memory segment of \d+ bytes: the limit on the size of files is 1048576 bytes
 */
#include "check.h"

#include <sys/resource.h>

int main(int argc, char **argv)
{
    struct rlimit limit = {1 << 20, 1 << 20};
    CHECK(setrlimit(RLIMIT_FSIZE, &limit) == 0);
    MPI_Init(&argc, &argv);
    printf("went on\n");
    return 0;
}
