/* Hints: given with a communicator by whatever makes it with an info object, and not handed on to a duplicate.
 * ranks: 1 3
 */
#include "world.h"

static int asserted(MPI_Comm comm, const char *key)
{
    MPI_Info used;
    char value[16];
    int flag, length = sizeof value;
    OK(MPI_Comm_get_info(comm, &used));
    OK(MPI_Info_get_string(used, key, &length, value, &flag));
    OK(MPI_Info_free(&used));
    return flag && strcmp(value, "true") == 0;
}

int main(int argc, char **argv)
{
    const char *key = "mpi_assert_no_any_tag", *other = "mpi_assert_exact_length";
    MPI_Info info;
    MPI_Request request;
    MPI_Comm parent, made[7];
    begin(&argc, &argv);
    int next = (rank + 1) % size, before = (rank + size - 1) % size, one = 1;

    OK(MPI_Info_create(&info));
    OK(MPI_Info_set(info, other, "true"));
    OK(MPI_Comm_dup_with_info(MPI_COMM_WORLD, info, &parent));
    CHECK(asserted(parent, other) && !asserted(parent, key));
    OK(MPI_Info_delete(info, other));
    OK(MPI_Info_set(info, key, "true"));

    OK(MPI_Comm_dup(parent, &made[0]));
    OK(MPI_Comm_idup(parent, &made[1], &request));
    OK(MPI_Wait(&request, MPI_STATUS_IGNORE));
    OK(MPI_Comm_dup_with_info(parent, info, &made[2]));
    OK(MPI_Comm_idup_with_info(parent, info, &made[3], &request));
    OK(MPI_Wait(&request, MPI_STATUS_IGNORE));
    OK(MPI_Comm_split_type(parent, MPI_COMM_TYPE_SHARED, 0, info, &made[4]));
    OK(MPI_Dist_graph_create_adjacent(parent, 1, &before, MPI_UNWEIGHTED, 1, &next, MPI_UNWEIGHTED, info, 0, &made[5]));
    OK(MPI_Dist_graph_create(parent, 1, &rank, &one, &next, MPI_UNWEIGHTED, info, 0, &made[6]));
    for (int i = 0; i < 7; i++) {
        CHECK(!asserted(made[i], other));
        CHECK(asserted(made[i], key) == (i >= 2));
        OK(MPI_Comm_free(&made[i]));
    }
    OK(MPI_Comm_free(&parent));
    OK(MPI_Info_free(&info));
    return end();
}
