#!/bin/bash
# What is kept of a machine's costs may be absent, torn, foreign, no file, or out of reach: messages of all lengths arrive all the same, and what lies there
# afterwards is whole. A job of short messages leaves nothing.
# timeout: 240
set -eu
cat > "$SCRATCH/lengths.c" <<'C'
#include "world.h"
#include <stdlib.h>
#include <string.h>
int main(int argc, char **argv)
{
    begin(&argc, &argv);
    int most = atoi(argv[1]), peer = rank ^ 1;
    char *out = malloc(most), *in = malloc(most);
    for (int round = 0; round < 40 && peer < size; round++)
        for (int bytes = 1; bytes <= most; bytes *= 2) {
            memset(out, round + rank + bytes, bytes);
            memset(in, 99, bytes);
            OK(MPI_Sendrecv(out, bytes, MPI_BYTE, peer, 0, in, bytes, MPI_BYTE, peer, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE));
            CHECK(in[0] == (char)(round + peer + bytes) && in[bytes - 1] == in[0] && in[bytes / 2] == in[0]);
        }
    return end();
}
C
mpicc -I "$ROOT/tests/programs-c" "$SCRATCH/lengths.c" -o "$SCRATCH/lengths"
unset HOME XDG_CACHE_HOME WHIMBREL_COSTS
file="$SCRATCH/kept/costs"
long() { mpiexec -n 2 "$SCRATCH/lengths" 1048576; }
# Whatever was there before: the file is this machine's now, or could not be measured and is as it was.
look() { WHIMBREL_COSTS="$file" whimbrel info --costs | tee "$SCRATCH/said" | head -4; }

XDG_CACHE_HOME="$SCRATCH/cache" long
[ ! -e "$SCRATCH/cache" ] || { echo "a job has looked for costs although nobody asked for that"; exit 1; }
XDG_CACHE_HOME="$SCRATCH/cache" WHIMBREL_COSTS=auto mpiexec -n 2 "$SCRATCH/lengths" 4096
[ ! -e "$SCRATCH/cache" ] || { echo "a job of short messages has looked for costs:"; find "$SCRATCH/cache"; exit 1; }
WHIMBREL_COSTS=auto long
WHIMBREL_COSTS=off long
XDG_CACHE_HOME="$SCRATCH/cache" WHIMBREL_COSTS=auto long
[ -d "$SCRATCH/cache/whimbrel" ] || { echo "a job of long messages has not looked for costs"; exit 1; }

for state in cold garbage torn foreign pipe folder; do
    rm -rf "$SCRATCH/kept"; mkdir "$SCRATCH/kept"
    case $state in
    cold) ;;
    garbage) head -c 5000 /dev/urandom > "$file" ;;
    torn) printf 'whimbrel costs 1\nmachine here\nshared-cache eager 1' > "$file" ;;
    foreign) cp "$ROOT/tests/memory/costs_foreign" "$file" ;;
    pipe) mkfifo "$file" ;;
    folder) mkdir "$file" ;;
    esac
    echo "== $state"
    WHIMBREL_COSTS="$file" long
    look
    case $state in
    folder) ;;
    *) if grep -q "^costs *from $file$" "$SCRATCH/said"; then
           grep -q "^checksum " "$file" || { echo "read, but without a checksum"; exit 1; }
       else
           grep -qE "^costs +(measured now|not measured)" "$SCRATCH/said" || exit 1
       fi ;;
    esac
    # A directory stays, with what failed beside it taken away again.
    left=$(find "$SCRATCH/kept" -name '*.new-*' | wc -l)
    [ "$left" = 0 ] || { echo "$left files are left beside it"; exit 1; }
done
WHIMBREL_COSTS=/proc/nowhere/costs long
if WHIMBREL_COSTS=sometimes long > "$SCRATCH/said" 2>&1; then
    echo "a setting that means nothing was taken"; exit 1
fi
grep -q 'WHIMBREL_COSTS="sometimes": expected auto, measure, off, or the path of a file' "$SCRATCH/said" || { cat "$SCRATCH/said"; exit 1; }
