/* Says where its rank is: of the world, of this host, of the command line; `abort`, `die`, `leave` and `twice` end oddly. */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static void session(void) {
    MPI_Session session;
    MPI_Group group;
    MPI_Comm comm;
    int size, sum = 0, one = 1;
    MPI_Session_init(MPI_INFO_NULL, MPI_ERRORS_ARE_FATAL, &session);
    MPI_Group_from_session_pset(session, "mpi://WORLD", &group);
    MPI_Comm_create_from_group(group, "where", MPI_INFO_NULL, MPI_ERRORS_ARE_FATAL, &comm);
    MPI_Comm_size(comm, &size);
    MPI_Allreduce(&one, &sum, 1, MPI_INT, MPI_SUM, comm);
    if (sum != size) abort();
    MPI_Comm_free(&comm);
    MPI_Group_free(&group);
    MPI_Session_finalize(&session);
}

int main(int argc, char **argv) {
    int rank, size, local, sum, *appnum, *universe, found;
    MPI_Comm host;
    const char *mode = argc > 1 ? argv[1] : "";
    if (!strcmp(mode, "twice")) {
        session();
        session();
        puts("sessions: done twice");
        return 0;
    }
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    if (!strcmp(mode, "abort") && rank == size - 1) MPI_Abort(MPI_COMM_WORLD, 7);
    if (!strcmp(mode, "die") && rank == size - 1) _exit(5);
    MPI_Comm_split_type(MPI_COMM_WORLD, MPI_COMM_TYPE_SHARED, 0, MPI_INFO_NULL, &host);
    MPI_Comm_size(host, &local);
    MPI_Comm_get_attr(MPI_COMM_WORLD, MPI_APPNUM, &appnum, &found);
    MPI_Comm_get_attr(MPI_COMM_WORLD, MPI_UNIVERSE_SIZE, &universe, &found);
    MPI_Allreduce(&rank, &sum, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
    if (sum != size * (size - 1) / 2) abort();
    printf("rank %d of %d, %d here, program %d, universe %s\n", rank, size, local, *appnum, *universe >= size ? "good" : "bad");
    fflush(stdout);
    MPI_Comm_free(&host);
    MPI_Finalize();
    return !strcmp(mode, "leave") && rank == size - 1 ? 3 : 0;
}
