/* A program that a rank starts, and that calls MPI_Init itself, is a world of one: once by fork and exec, once through a shell.
 * ranks: 1 3
 */
#include "check.h"
#include <sys/wait.h>
#include <unistd.h>

static int helper(void) {
    int size, rank, sum = 0, one = 7;
    OK(MPI_Init(NULL, NULL));
    OK(MPI_Comm_size(MPI_COMM_WORLD, &size));
    OK(MPI_Comm_rank(MPI_COMM_WORLD, &rank));
    CHECK(size == 1 && rank == 0);
    OK(MPI_Allreduce(&one, &sum, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD));
    CHECK(sum == 7);
    OK(MPI_Finalize());
    return 0;
}

int main(int argc, char **argv) {
    int rank, size, sum, status;
    char command[4200];
    if (argc > 1)
        return helper();
    OK(MPI_Init(&argc, &argv));
    OK(MPI_Comm_rank(MPI_COMM_WORLD, &rank));
    OK(MPI_Comm_size(MPI_COMM_WORLD, &size));
    pid_t child = fork();
    CHECK(child >= 0);
    if (child == 0) {
        execl(argv[0], argv[0], "helper", (char *)NULL);
        _exit(98);
    }
    CHECK(waitpid(child, &status, 0) == child && status == 0);
    snprintf(command, sizeof command, "'%s' helper; exit $?", argv[0]);
    CHECK(system(command) == 0);
    OK(MPI_Allreduce(&rank, &sum, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD));
    CHECK(sum == size * (size - 1) / 2);
    OK(MPI_Finalize());
    return 0;
}
