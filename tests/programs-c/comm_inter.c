/* Intercommunicators: made from two groups in three ways, merged in either order, duplicated, split, and talked over.
 * ranks: 2 3 5 8
 */
#include "world.h"

/* Two halves: ranks below `cut` and the others. */
static int cut, low, half_rank, half_size, far_size;
static MPI_Comm half;

static void check_inter(MPI_Comm inter)
{
    int flag, local, remote, sum, one = rank + 1, expected = 0, from_far = -1;
    OK(MPI_Comm_test_inter(inter, &flag));
    OK(MPI_Comm_size(inter, &local));
    OK(MPI_Comm_remote_size(inter, &remote));
    CHECK(flag && local == half_size && remote == far_size);
    OK(MPI_Allreduce(&one, &sum, 1, MPI_INT, MPI_SUM, inter));
    for (int r = low ? cut : 0; r < (low ? size : cut); r++)
        expected += r + 1;
    CHECK(sum == expected);
    /* Point-to-point messages go to the other group. */
    MPI_Status status;
    int to = half_rank % remote;
    MPI_Request request;
    OK(MPI_Isend(&rank, 1, MPI_INT, to, 4, inter, &request));
    for (int r = 0; r < remote; r++) {
        if (r % local != half_rank)
            continue;
        OK(MPI_Recv(&from_far, 1, MPI_INT, r, 4, inter, &status));
        CHECK(from_far == (low ? cut + r : r) && status.MPI_SOURCE == r);
    }
    OK(MPI_Wait(&request, MPI_STATUS_IGNORE));
    OK(MPI_Barrier(inter));
}

static void check_merged(MPI_Comm inter, int high, int my_half_first)
{
    MPI_Comm merged;
    int me, all;
    OK(MPI_Intercomm_merge(inter, high, &merged));
    OK(MPI_Comm_rank(merged, &me));
    OK(MPI_Comm_size(merged, &all));
    CHECK(all == size && me == half_rank + (my_half_first ? 0 : far_size));
    OK(MPI_Barrier(merged));
    OK(MPI_Comm_free(&merged));
}

int main(int argc, char **argv)
{
    begin(&argc, &argv);
    cut = (size + 1) / 2;
    low = rank < cut;
    OK(MPI_Comm_split(MPI_COMM_WORLD, low, rank, &half));
    OK(MPI_Comm_rank(half, &half_rank));
    OK(MPI_Comm_size(half, &half_size));
    far_size = size - half_size;
    MPI_Comm inter, copy, part, grown;
    MPI_Request request;
    /* The leaders need not be the first. */
    OK(MPI_Intercomm_create(half, half_size - 1, MPI_COMM_WORLD, low ? size - 1 : cut - 1, 11, &inter));
    check_inter(inter);
    check_merged(inter, low, !low);
    check_merged(inter, !low, low);
    OK(MPI_Comm_dup(inter, &copy));
    OK(MPI_Comm_idup(inter, &part, &request));
    check_inter(copy);
    OK(MPI_Wait(&request, MPI_STATUS_IGNORE));
    check_inter(part);
    int result;
    OK(MPI_Comm_compare(inter, part, &result));
    CHECK(result == MPI_CONGRUENT);
    OK(MPI_Comm_compare(inter, half, &result));
    CHECK(result == MPI_UNEQUAL);
    OK(MPI_Comm_free(&part));
    /* Freed while others go on with theirs. */
    OK(MPI_Comm_free(&inter));
    check_inter(copy);

    /* One pair of ranks, then colours that only one group has. */
    OK(MPI_Comm_split(copy, half_rank == 0 ? 5 : MPI_UNDEFINED, 0, &part));
    CHECK((part == MPI_COMM_NULL) == (half_rank != 0));
    if (part != MPI_COMM_NULL) {
        int remote;
        OK(MPI_Comm_remote_size(part, &remote));
        CHECK(remote == 1);
        OK(MPI_Barrier(part));
        OK(MPI_Comm_free(&part));
    }
    OK(MPI_Comm_split(copy, low, 0, &part));
    CHECK(part == MPI_COMM_NULL);
    MPI_Group own, first;
    int zero = 0;
    OK(MPI_Comm_group(copy, &own));
    OK(MPI_Group_incl(own, 1, &zero, &first));
    OK(MPI_Comm_create(copy, first, &part));
    CHECK((part == MPI_COMM_NULL) == (half_rank != 0));
    if (part != MPI_COMM_NULL)
        OK(MPI_Comm_free(&part));

    /* From groups alone. */
    MPI_Group far;
    OK(MPI_Comm_remote_group(copy, &far));
    OK(MPI_Intercomm_create_from_groups(own, half_size - 1, far, far_size - 1, "two halves", MPI_INFO_NULL, MPI_ERRORS_RETURN, &grown));
    check_inter(grown);
    int bad;
    OK(MPI_Comm_set_errhandler(copy, MPI_ERRORS_RETURN));
    FAILS(MPI_ERR_ROOT, MPI_Bcast(&bad, 1, MPI_INT, far_size, copy));
    FAILS(MPI_ERR_BUFFER, MPI_Allreduce(MPI_IN_PLACE, &bad, 1, MPI_INT, MPI_SUM, copy));
    FAILS(MPI_ERR_COMM, MPI_Scan(&rank, &bad, 1, MPI_INT, MPI_SUM, copy));
    FAILS(MPI_ERR_COMM, MPI_Comm_remote_size(half, &bad));
    OK(MPI_Group_free(&own));
    OK(MPI_Group_free(&first));
    OK(MPI_Group_free(&far));
    OK(MPI_Comm_free(&grown));
    OK(MPI_Comm_free(&copy));
    OK(MPI_Comm_free(&half));
    return end();
}
