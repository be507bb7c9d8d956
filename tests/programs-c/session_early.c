/* A process that is still in its only session has messages of those who are in the next one already: they stay for that.
 * ranks: 2 4
 */
#include "world.h"

enum { ROUNDS = 6 };

int main(void)
{
    for (int round = 0; round < ROUNDS; round++) {
        MPI_Session session;
        MPI_Group group;
        MPI_Comm comm;
        int one = 1, sum;
        char tag[16];
        snprintf(tag, sizeof tag, "round %d", round);
        OK(MPI_Session_init(MPI_INFO_NULL, MPI_ERRORS_RETURN, &session));
        OK(MPI_Group_from_session_pset(session, "mpi://WORLD", &group));
        OK(MPI_Comm_create_from_group(group, tag, MPI_INFO_NULL, MPI_ERRORS_RETURN, &comm));
        OK(MPI_Group_free(&group));
        OK(MPI_Comm_rank(comm, &rank));
        OK(MPI_Comm_size(comm, &size));
        OK(MPI_Allreduce(&one, &sum, 1, MPI_INT, MPI_SUM, comm));
        CHECK(sum == size);
        /* One of them is late, and hears of what the others begin. */
        if (rank == round % size) {
            double begin = MPI_Wtime();
            int flag;
            while (MPI_Wtime() - begin < 0.1)
                OK(MPI_Iprobe(MPI_ANY_SOURCE, MPI_ANY_TAG, comm, &flag, MPI_STATUS_IGNORE));
        }
        OK(MPI_Comm_free(&comm));
        OK(MPI_Session_finalize(&session));
    }
    return 0;
}
