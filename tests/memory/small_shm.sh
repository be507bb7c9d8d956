#!/bin/bash
# A tiny /dev/shm, one that is full, and none at all make no difference.
# timeout: 180
set -eu
unshare -m true 2>/dev/null || { echo "needs a mount namespace of its own"; exit 77; }
cat > "$SCRATCH/talk.c" <<'C'
#include "world.h"
int main(int argc, char **argv)
{
    enum { BYTES = 4 << 20 };
    begin(&argc, &argv);
    unsigned char *out = memory_of(BYTES), *in = memory_of(BYTES);
    for (int bytes = 1; bytes <= BYTES; bytes *= 4)
        for (int peer = 0; peer < size; peer++) {
            fill(out, (size_t)bytes, (unsigned)rank);
            OK(MPI_Sendrecv(out, bytes, MPI_BYTE, (rank + peer) % size, 0, in, bytes, MPI_BYTE, (rank + size - peer) % size, 0,
                            MPI_COMM_WORLD, MPI_STATUS_IGNORE));
            CHECK(holds(in, (size_t)bytes, (unsigned)((rank + size - peer) % size)));
        }
    int sum;
    OK(MPI_Allreduce(&rank, &sum, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD));
    CHECK(sum == size * (size - 1) / 2);
    return end();
}
C
mpicc -I "$ROOT/tests/programs-c" "$SCRATCH/talk.c" -o "$SCRATCH/talk"
export SCRATCH
for copies in on off; do
    export WHIMBREL_SINGLE_COPY=$copies
    unshare -m bash -euc 'mount -t tmpfs -o size=4k tmpfs /dev/shm; mpiexec -n 4 "$SCRATCH/talk"'
    unshare -m bash -euc 'mount -t tmpfs -o size=64k tmpfs /dev/shm; head -c 65536 /dev/zero > /dev/shm/full
        ! { echo more > /dev/shm/more; } 2> /dev/null; mpiexec -n 4 "$SCRATCH/talk"'
    unshare -m bash -euc 'mount -t tmpfs -o ro tmpfs /dev/shm; mpiexec -n 4 "$SCRATCH/talk"; test -z "$(ls /dev/shm)"'
    unshare -m bash -euc 'mount -t tmpfs tmpfs /dev; mknod -m 666 /dev/null c 1 3; mknod -m 666 /dev/urandom c 1 9
        mpiexec -n 4 "$SCRATCH/talk"; test ! -e /dev/shm'
done
