/* Whoever waits for a lock is woken when it is given back: ranks that have fallen asleep take turns. If each turn had to wait for a look now and then, the
 * test would not end in time.
 * ranks: 2 3 4 8
 * timeout: 60
 */
#include "check.h"
#include <unistd.h>

enum { TURNS = 800, PAUSE_US = 4000 };

int main(int argc, char **argv) {
    int rank, size, *count, wrong = 0;
    MPI_Win win;
    OK(MPI_Init(&argc, &argv));
    OK(MPI_Comm_rank(MPI_COMM_WORLD, &rank));
    OK(MPI_Comm_size(MPI_COMM_WORLD, &size));
    OK(MPI_Win_allocate(2 * sizeof(int), sizeof(int), MPI_INFO_NULL, MPI_COMM_WORLD, &count, &win));
    count[0] = count[1] = 0;
    OK(MPI_Barrier(MPI_COMM_WORLD));
    for (int turn = 0; turn < TURNS; turn++) {
        int values[2];
        /* One alone for long enough that others fall asleep; some of the others together. */
        int exclusive = (turn + rank) % 3 != 0;
        OK(MPI_Win_lock(exclusive ? MPI_LOCK_EXCLUSIVE : MPI_LOCK_SHARED, 0, 0, win));
        OK(MPI_Get(values, 2, MPI_INT, 0, 0, 2, MPI_INT, win));
        OK(MPI_Win_flush(0, win));
        wrong += values[0] != values[1];
        if (exclusive) {
            values[0]++;
            OK(MPI_Put(values, 1, MPI_INT, 0, 0, 1, MPI_INT, win));
            OK(MPI_Win_flush(0, win));
            usleep(turn % 8 ? 0 : PAUSE_US);
            OK(MPI_Put(values, 1, MPI_INT, 0, 1, 1, MPI_INT, win));
        }
        OK(MPI_Win_unlock(0, win));
    }
    CHECK(wrong == 0);
    OK(MPI_Barrier(MPI_COMM_WORLD));
    int expected = 0;
    for (int r = 0; r < size; r++)
        for (int turn = 0; turn < TURNS; turn++) expected += (turn + r) % 3 != 0;
    if (rank == 0) CHECK(count[0] == expected && count[1] == expected);
    OK(MPI_Win_free(&win));
    OK(MPI_Finalize());
    return 0;
}
