/* Many calls in one epoch, none waited for: their answers come in order, and are told of at its end. A call that fails among them is, too.
 * ranks: 1 2 3
 * timeout: 60
 */
#include "check.h"

enum { CALLS = 30000 };

int main(int argc, char **argv) {
    static long found[CALLS], memory[2];
    int rank, size;
    long one = 1;
    MPI_Win win;
    OK(MPI_Init(&argc, &argv));
    OK(MPI_Comm_rank(MPI_COMM_WORLD, &rank));
    OK(MPI_Comm_size(MPI_COMM_WORLD, &size));
    int next = (rank + 1) % size;
    OK(MPI_Win_create(memory, sizeof memory, sizeof(long), MPI_INFO_NULL, MPI_COMM_WORLD, &win));
    OK(MPI_Win_fence(0, win));
    for (int i = 0; i < CALLS; i++) OK(MPI_Fetch_and_op(&one, &found[i], MPI_LONG, next, 0, MPI_SUM, win));
    OK(MPI_Win_fence(0, win));
    for (int i = 0; i < CALLS; i++) CHECK(found[i] == i);
    CHECK(memory[0] == CALLS);
    for (int i = 0; i < CALLS; i++) OK(MPI_Get(&found[i], 1, MPI_LONG, next, i % 2, 1, MPI_LONG, win));
    OK(MPI_Win_fence(0, win));
    for (int i = 0; i < CALLS; i++) CHECK(found[i] == (i % 2 ? 0 : CALLS));
    OK(MPI_Win_free(&win));

    /* A dynamic window, where the target alone knows what is attached. */
    MPI_Aint base, bases[8], bad = 0;
    OK(MPI_Win_create_dynamic(MPI_INFO_NULL, MPI_COMM_WORLD, &win));
    OK(MPI_Win_set_errhandler(win, MPI_ERRORS_RETURN));
    OK(MPI_Win_attach(win, memory, sizeof memory));
    OK(MPI_Get_address(memory, &base));
    OK(MPI_Allgather(&base, 1, MPI_AINT, bases, 1, MPI_AINT, MPI_COMM_WORLD));
    memory[0] = 0;
    OK(MPI_Barrier(MPI_COMM_WORLD));
    OK(MPI_Win_lock(MPI_LOCK_SHARED, next, 0, win));
    for (int i = 0; i < CALLS; i++) {
        /* Behind what is attached; of this rank itself it is found at once. */
        MPI_Aint at = i == 100 ? bases[next] + (MPI_Aint)sizeof memory : bases[next];
        if (MPI_Fetch_and_op(&one, &found[i], MPI_LONG, next, at, MPI_SUM, win) != MPI_SUCCESS) bad++;
    }
    if (size > 1) {
        CHECK(bad == 0);
        FAILS(MPI_ERR_RMA_RANGE, MPI_Win_flush(next, win));
    } else {
        CHECK(bad == 1);
    }
    OK(MPI_Win_unlock(next, win));
    for (int i = 0; i < CALLS; i++) CHECK(i == 100 || found[i] == i - (i > 100));
    OK(MPI_Win_free(&win));
    OK(MPI_Finalize());
    return 0;
}
