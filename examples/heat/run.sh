#!/bin/sh
# Builds heat.c with this library's mpicc and runs it; arguments go to the program (heat --help shows them).
# RANKS=N for another number of ranks; the picture is left in the current folder unless --output says otherwise.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
root=$(cd "$here/../.." && pwd)
bin=$root/build/bin
scratch=$root/.cache/heat
ranks=${RANKS:-4}

if [ ! -x "$bin/mpicc" ] || [ ! -x "$bin/mpiexec" ]; then
    echo "heat: there is no library in $root/build yet; run make there first" >&2
    exit 1
fi
if ! echo '#include <png.h>' | cc -E - >/dev/null 2>&1; then
    echo "heat: libpng's header is missing (Debian: apt-get install libpng-dev)" >&2
    exit 1
fi
mkdir -p "$scratch"
# Without contraction, and so the same to the last bit, however the compiler arranges the loops.
"$bin/mpicc" -O2 -ffp-contract=off "$here/heat.c" -o "$scratch/heat" -lpng -lm
exec "$bin/mpiexec" -n "$ranks" --report "$scratch/heat" "$@"
