/* The forms with large counts of all one-sided calls.
 * ranks: 1 2
 */
#include "check.h"

int main(int argc, char **argv) {
    MPI_Win win, shared;
    int rank, size, *base, *loads, *theirs, one = 1, old = -1, found[4] = {0}, memory[8] = {0};
    MPI_Aint bytes, unit;
    MPI_Request requests[5];
    OK(MPI_Init(&argc, &argv));
    OK(MPI_Comm_rank(MPI_COMM_WORLD, &rank));
    OK(MPI_Comm_size(MPI_COMM_WORLD, &size));
    int right = (rank + 1) % size, left = (rank + size - 1) % size;
    OK(MPI_Win_create_c(memory, sizeof memory, sizeof(int), MPI_INFO_NULL, MPI_COMM_WORLD, &win));
    MPI_Comm near;
    OK(MPI_Comm_split_type(MPI_COMM_WORLD, MPI_COMM_TYPE_SHARED, 0, MPI_INFO_NULL, &near));
    OK(MPI_Win_allocate_shared_c(4 * sizeof(int), sizeof(int), MPI_INFO_NULL, near, &loads, &shared));
    OK(MPI_Win_shared_query_c(shared, 0, &bytes, &unit, &theirs));
    OK(MPI_Comm_free(&near));
    CHECK(bytes == 4 * (MPI_Aint)sizeof(int) && unit == sizeof(int));
    OK(MPI_Win_lock_all(0, win));
    OK(MPI_Put_c(&rank, 1, MPI_INT, right, 0, 1, MPI_INT, win));
    OK(MPI_Win_flush(right, win));
    OK(MPI_Get_c(&found[0], 1, MPI_INT, right, 0, 1, MPI_INT, win));
    OK(MPI_Accumulate_c(&one, 1, MPI_INT, right, 1, 1, MPI_INT, MPI_SUM, win));
    OK(MPI_Get_accumulate_c(&one, 1, MPI_INT, &old, 1, MPI_INT, right, 1, 1, MPI_INT, MPI_SUM, win));
    OK(MPI_Win_flush_local(right, win));
    OK(MPI_Win_flush_local_all(win));
    CHECK(found[0] == rank && old == 1);
    OK(MPI_Rput_c(&rank, 1, MPI_INT, right, 2, 1, MPI_INT, win, &requests[0]));
    OK(MPI_Raccumulate_c(&one, 1, MPI_INT, right, 3, 1, MPI_INT, MPI_SUM, win, &requests[1]));
    OK(MPI_Rget_accumulate_c(&one, 1, MPI_INT, &found[1], 1, MPI_INT, right, 3, 1, MPI_INT, MPI_SUM, win, &requests[2]));
    OK(MPI_Waitall(3, requests, MPI_STATUSES_IGNORE));
    OK(MPI_Win_flush_all(win));
    OK(MPI_Rget_c(&found[2], 1, MPI_INT, right, 2, 1, MPI_INT, win, &requests[0]));
    OK(MPI_Wait(&requests[0], MPI_STATUS_IGNORE));
    CHECK(found[1] == 1 && found[2] == rank);
    OK(MPI_Win_unlock_all(win));
    OK(MPI_Barrier(MPI_COMM_WORLD));
    CHECK(memory[0] == left && memory[1] == 2 && memory[2] == left && memory[3] == 2);
    OK(MPI_Win_free(&shared));
    OK(MPI_Win_free(&win));
    OK(MPI_Win_allocate_c(sizeof(int), sizeof(int), MPI_INFO_NULL, MPI_COMM_WORLD, &base, &win));
    OK(MPI_Win_fence(0, win));
    OK(MPI_Put_c(&rank, 1, MPI_INT, right, 0, 1, MPI_INT, win));
    OK(MPI_Win_fence(0, win));
    CHECK(*base == left);
    OK(MPI_Win_free(&win));
    OK(MPI_Finalize());
    return 0;
}
