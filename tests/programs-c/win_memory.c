/* What a window takes of a process' own memory: at 64 ranks no more than 64 bytes for each of them, whatever its flavor, once it has been used. Memory that
 * ranks share is not in it: two lines and one of the window's own for each rank, 192 bytes, once for all of them.
 * ranks: 64
 * timeout: 240
 */
#include "world.h"

#include <malloc.h>
#include <stdlib.h>

enum { WINDOWS = 32, BYTES = 64, PER_PEER = 64 };

static MPI_Win windows[WINDOWS];
static char mine[BYTES];

static void make(int flavor, MPI_Win *window)
{
    void *base;
    if (flavor == MPI_WIN_FLAVOR_CREATE)
        OK(MPI_Win_create(mine, BYTES, 1, MPI_INFO_NULL, MPI_COMM_WORLD, window));
    else if (flavor == MPI_WIN_FLAVOR_ALLOCATE)
        OK(MPI_Win_allocate(BYTES, 1, MPI_INFO_NULL, MPI_COMM_WORLD, &base, window));
    else if (flavor == MPI_WIN_FLAVOR_SHARED)
        OK(MPI_Win_allocate_shared(BYTES, 1, MPI_INFO_NULL, MPI_COMM_WORLD, &base, window));
    else
        OK(MPI_Win_create_dynamic(MPI_INFO_NULL, MPI_COMM_WORLD, window));
}

/* Bytes that are allocated, a window. */
static long taken(int flavor)
{
    struct mallinfo2 before = mallinfo2();
    for (int i = 0; i < WINDOWS; i++) {
        make(flavor, &windows[i]);
        if (flavor != MPI_WIN_FLAVOR_DYNAMIC) {
            char there = 1;
            OK(MPI_Win_lock(MPI_LOCK_SHARED, (rank + 1) % size, 0, windows[i]));
            OK(MPI_Put(&there, 1, MPI_CHAR, (rank + 1) % size, rank % BYTES, 1, MPI_CHAR, windows[i]));
            OK(MPI_Win_unlock((rank + 1) % size, windows[i]));
        }
        OK(MPI_Win_fence(0, windows[i]));
        OK(MPI_Win_fence(MPI_MODE_NOSUCCEED, windows[i]));
    }
    struct mallinfo2 after = mallinfo2();
    for (int i = 0; i < WINDOWS; i++)
        OK(MPI_Win_free(&windows[i]));
    return ((long)(after.uordblks + after.hblkhd) - (long)(before.uordblks + before.hblkhd)) / WINDOWS;
}

int main(int argc, char **argv)
{
    static const int flavors[] = {MPI_WIN_FLAVOR_CREATE, MPI_WIN_FLAVOR_ALLOCATE, MPI_WIN_FLAVOR_SHARED, MPI_WIN_FLAVOR_DYNAMIC};
    begin(&argc, &argv);
    for (int i = 0; i < 4; i++) {
        /* Tables that all windows share grow at the first, and lists of what waits on a busy machine at any: the least of several is a
         * window's. */
        long bytes = taken(flavors[i]), most;
        for (int again = 0; again < 3; again++) {
            long now = taken(flavors[i]);
            if (now < bytes)
                bytes = now;
        }
        OK(MPI_Allreduce(&bytes, &most, 1, MPI_LONG, MPI_MAX, MPI_COMM_WORLD));
        if (rank == 0)
            printf("flavor %d: %ld bytes a window, %.1f a rank\n", flavors[i], most, (double)most / size);
        CHECK(most <= (long)size * PER_PEER);
        CHECK(bytes > 0);
    }
    return end();
}
