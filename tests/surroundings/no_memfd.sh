#!/bin/bash
# A sandbox refuses memfd_create to the launcher and all ranks: files without a name in /dev/shm, then in TMPDIR, serve instead; where there is no
# room, one line says so, and nobody dies of SIGBUS.
# timeout: 180
set -eu
cat > "$SCRATCH/inside.c" <<'C'
#include "refuse.inc"
#include <stdio.h>
#include <string.h>
#include <unistd.h>
int main(int argc, char **argv)
{
    /* Without fallocate no file system will do. */
    int nowhere = argc > 2 && strcmp(argv[1], "nowhere") == 0;
    if (argc < 2 || !refuse(SYS_memfd_create, EPERM) || (nowhere && !refuse(SYS_fallocate, EOPNOTSUPP)))
        return 99;
    execvp(argv[1 + nowhere], argv + 1 + nowhere);
    perror(argv[1]);
    return 98;
}
C
cat > "$SCRATCH/talk.c" <<'C'
#include "world.h"
int main(int argc, char **argv)
{
    int sum, sums = 0;
    begin(&argc, &argv);
    for (int i = 0; i < 1000; i++) {
        OK(MPI_Allreduce(&rank, &sum, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD));
        OK(MPI_Sendrecv(&sum, 1, MPI_INT, (rank + 1) % size, 0, &sums, 1, MPI_INT, (rank + size - 1) % size, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE));
        CHECK(sums == size * (size - 1) / 2);
    }
    return end();
}
C
cc -I "$ROOT/tests/surroundings" "$SCRATCH/inside.c" -o "$SCRATCH/inside"
mpicc -I "$ROOT/tests/programs-c" "$SCRATCH/talk.c" -o "$SCRATCH/talk"
export SCRATCH
before=$(ls -A /dev/shm | grep -c whimbrel || true)
"$SCRATCH/inside" mpiexec -n 3 "$SCRATCH/talk"
test "$(ls -A /dev/shm | grep -c whimbrel || true)" = "$before"
# Nowhere at all.
status=0
TMPDIR=$SCRATCH "$SCRATCH/inside" nowhere mpiexec -n 3 "$SCRATCH/talk" > "$SCRATCH/nowhere" 2>&1 || status=$?
test $status != 0
grep -q "memfd_create is refused (.*), and so are files for shared memory in /dev/shm (.*), $SCRATCH (.*), /tmp (.*): allow that call" "$SCRATCH/nowhere" ||
    { cat "$SCRATCH/nowhere"; exit 1; }
unshare -m true 2>/dev/null || { echo "skip  other file systems: needs a mount namespace of its own"; exit 0; }
mkdir "$SCRATCH/room"
# A full /dev/shm: TMPDIR.
unshare -m bash -euc 'mount -t tmpfs -o size=4k tmpfs /dev/shm; ! head -c 8192 /dev/zero > /dev/shm/full 2> /dev/null
    mount -t tmpfs -o size=64m tmpfs "$SCRATCH/room"; export TMPDIR=$SCRATCH/room
    "$SCRATCH/inside" mpiexec -n 3 "$SCRATCH/talk"; test -z "$(ls -A "$SCRATCH/room")"'
# No room for more than the beginnings: an error, and no SIGBUS.
unshare -m bash -euc 'mount -t tmpfs -o size=20k tmpfs /dev/shm
    status=0; "$SCRATCH/inside" mpiexec -n 3 "$SCRATCH/talk" > "$SCRATCH/full" 2>&1 || status=$?; test $status != 0'
cat "$SCRATCH/full"
grep -qi "no memory for .* segment\|no room" "$SCRATCH/full"
! grep -q SIGBUS "$SCRATCH/full" || exit 1
