#!/bin/sh
# A tool library that defines MPI_Send and calls PMPI_Send sees every send, preloaded or linked in front.
set -eu
cat > tool.c <<'C'
#include <mpi.h>
#include <stdio.h>
static int calls;
int MPI_Send(const void *buf, int count, MPI_Datatype datatype, int dest, int tag, MPI_Comm comm) {
    calls++;
    return PMPI_Send(buf, count, datatype, dest, tag, comm);
}
int MPI_Finalize(void) {
    int rank;
    PMPI_Comm_rank(MPI_COMM_WORLD, &rank);
    printf("rank %d sent %d messages\n", rank, calls);
    fflush(stdout);
    return PMPI_Finalize();
}
C
cat > program.c <<'C'
#include <mpi.h>
int main(int argc, char **argv) {
    int rank, n, sum = 0;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    for (n = 0; n < 5; n++) {
        if (rank == 0) {
            MPI_Send(&n, 1, MPI_INT, 1, 0, MPI_COMM_WORLD);
        } else if (rank == 1) {
            int got;
            MPI_Recv(&got, 1, MPI_INT, 0, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
            sum += got;
        }
    }
    MPI_Finalize();
    return rank == 1 && sum != 10;
}
C
if grep '^Not built' "$ROOT/docs/status.md" | grep -q '`MPI_Send`'; then
    echo 'MPI_Send is not built'
    exit 77
fi
mpicc -shared -fPIC tool.c -o libtool.so
mpicc program.c -o program
mpicc program.c -o program_with_tool -L. -ltool -Wl,-rpath,"$PWD"
expect() {
    sort "$1" | diff - wanted
}
printf 'rank 0 sent 5 messages\nrank 1 sent 0 messages\n' > wanted
mpiexec -n 2 env LD_PRELOAD="$PWD/libtool.so" ./program > preloaded
expect preloaded
mpiexec -n 2 ./program_with_tool > linked
expect linked
mpiexec -n 2 ./program > plain
[ ! -s plain ]
