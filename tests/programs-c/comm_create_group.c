/* Communicators of groups, made without the ranks outside of them: several at once, told apart by tags.
 * ranks: 1 2 5
 */
#include "world.h"

int main(int argc, char **argv)
{
    begin(&argc, &argv);
    MPI_Group world, upper, even;
    MPI_Comm part, other;
    int first = size / 2, upper_range[1][3] = {{first, size - 1, 1}}, even_range[1][3] = {{0, size - 1, 2}}, sum, one = 1;
    OK(MPI_Comm_group(MPI_COMM_WORLD, &world));
    OK(MPI_Group_range_incl(world, 1, upper_range, &upper));
    OK(MPI_Group_range_incl(world, 1, even_range, &even));
    for (int round = 0; round < 20; round++) {
        if (rank >= first) {
            OK(MPI_Comm_create_group(MPI_COMM_WORLD, upper, 7, &part));
            OK(MPI_Allreduce(&one, &sum, 1, MPI_INT, MPI_SUM, part));
            CHECK(sum == size - first);
        }
        if (rank % 2 == 0) {
            OK(MPI_Comm_create_group(MPI_COMM_WORLD, even, 8, &other));
            OK(MPI_Allreduce(&one, &sum, 1, MPI_INT, MPI_SUM, other));
            CHECK(sum == (size + 1) / 2);
            OK(MPI_Comm_free(&other));
        }
        if (rank >= first)
            OK(MPI_Comm_free(&part));
    }
    OK(MPI_Group_free(&even));
    OK(MPI_Group_free(&upper));
    OK(MPI_Group_free(&world));
    return end();
}
