/* Post, start, complete, wait and test, with overlapping groups and in rounds.
 * ranks: 1 2 3 4
 */
#include "check.h"

static int rank, size;
enum { ROUNDS = 20 };

static MPI_Group only(int r) {
    MPI_Group world, group;
    OK(MPI_Comm_group(MPI_COMM_WORLD, &world));
    OK(MPI_Group_incl(world, 1, &r, &group));
    OK(MPI_Group_free(&world));
    return group;
}

/* Each puts to the right and is put to by the left. */
static void ring(MPI_Win win, int *base) {
    int right = (rank + 1) % size, left = (rank + size - 1) % size;
    MPI_Group to = only(right), from = only(left);
    for (int round = 0; round < ROUNDS; round++) {
        int value = 100 * rank + round, flag = 0;
        OK(MPI_Win_post(from, round % 2 ? MPI_MODE_NOSTORE : 0, win));
        OK(MPI_Win_start(to, 0, win));
        OK(MPI_Put(&value, 1, MPI_INT, right, 3, 1, MPI_INT, win));
        OK(MPI_Win_complete(win));
        if (round % 3)
            OK(MPI_Win_wait(win));
        else
            while (!flag) OK(MPI_Win_test(win, &flag));
        CHECK(base[3] == 100 * left + round);
    }
    OK(MPI_Group_free(&to));
    OK(MPI_Group_free(&from));
}

/* All add to rank 0, which computes meanwhile and looks now and then. */
static void star(MPI_Win win, int *base) {
    MPI_Group all, others, zero = only(0);
    int none = 0;
    OK(MPI_Comm_group(MPI_COMM_WORLD, &all));
    OK(MPI_Group_excl(all, 1, &none, &others));
    for (int round = 0; round < ROUNDS; round++) {
        if (rank == 0) {
            int flag = 0;
            base[5] = 0;
            OK(MPI_Win_post(others, 0, win));
            if (round % 2)
                OK(MPI_Win_wait(win));
            else
                while (!flag) OK(MPI_Win_test(win, &flag));
            CHECK(base[5] == (size - 1) * size / 2);
        } else {
            OK(MPI_Win_start(zero, 0, win));
            OK(MPI_Accumulate(&rank, 1, MPI_INT, 0, 5, 1, MPI_INT, MPI_SUM, win));
            OK(MPI_Win_complete(win));
        }
    }
    OK(MPI_Group_free(&all));
    OK(MPI_Group_free(&others));
    OK(MPI_Group_free(&zero));
    /* Nobody. */
    OK(MPI_Win_post(MPI_GROUP_EMPTY, 0, win));
    OK(MPI_Win_start(MPI_GROUP_EMPTY, 0, win));
    OK(MPI_Win_complete(win));
    OK(MPI_Win_wait(win));
}

int main(int argc, char **argv) {
    MPI_Win win;
    int *base, own[8];
    OK(MPI_Init(&argc, &argv));
    OK(MPI_Comm_rank(MPI_COMM_WORLD, &rank));
    OK(MPI_Comm_size(MPI_COMM_WORLD, &size));
    OK(MPI_Win_allocate(8 * sizeof(int), sizeof(int), MPI_INFO_NULL, MPI_COMM_WORLD, &base, &win));
    ring(win, base);
    star(win, base);
    OK(MPI_Win_free(&win));
    OK(MPI_Win_create(own, sizeof own, sizeof(int), MPI_INFO_NULL, MPI_COMM_WORLD, &win));
    ring(win, own);
    star(win, own);
    OK(MPI_Win_free(&win));
    OK(MPI_Finalize());
    return 0;
}
