#!/bin/bash
# Surroundings that an MPI job meets in containers and scripts: it works, or one line says what to do.
# timeout: 120
set -eu
cat > "$SCRATCH/hello.c" <<'C'
#include "world.h"
int main(int argc, char **argv)
{
    begin(&argc, &argv);
    int sum;
    OK(MPI_Allreduce(&(int){1}, &sum, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD));
    CHECK(sum == size);
    return end();
}
C
cat > "$SCRATCH/twice.c" <<'C'
#include <dlfcn.h>
#include <stdio.h>
int main(int argc, char **argv)
{
    for (int i = 1; i < argc; i++) {
        void *library = dlopen(argv[i], RTLD_NOW | RTLD_LOCAL);
        int (*init)(int *, char ***) = library ? (int (*)(int *, char ***))dlsym(library, "MPI_Init") : 0;
        if (!init || init(0, 0))
            return 98;
    }
    return 0;
}
C
mpicc -I "$ROOT/tests/programs-c" "$SCRATCH/hello.c" -o "$SCRATCH/hello"
cc "$SCRATCH/twice.c" -o "$SCRATCH/twice" -ldl
export SCRATCH
# Runs a command that must fail, and say REGEX in one line.
told() {
    local regex=$1 status=0
    shift
    "$@" > "$SCRATCH/said" 2>&1 || status=$?
    if [ $status = 0 ] || [ $status -gt 127 ] || ! grep -qE "$regex" "$SCRATCH/said"; then
        echo "$* ended with $status and does not say $regex:"
        cat "$SCRATCH/said"
        exit 1
    fi
}

# Two copies of the library in one process.
mkdir "$SCRATCH/copy"
cp "$WHIMBREL_TEST_PREFIX/lib/libmpi_abi.so.1" "$SCRATCH/copy"
told "has joined the job already, as rank [01]: .*; this process has loaded 2 copies of libmpi_abi \(.*copy/libmpi_abi.so.1, .*\): see to it that only one" \
    mpiexec -n 2 "$SCRATCH/twice" "$WHIMBREL_TEST_PREFIX/lib/libmpi_abi.so.1" "$SCRATCH/copy/libmpi_abi.so.1"

# No files may be written: shared memory counts as one.
(ulimit -f 0; mpiexec -n 2 "$SCRATCH/hello" 2>&1 || echo "status $?") | cat > "$SCRATCH/limited"
grep -q "the limit on the size of files is 0 bytes.*ulimit -f unlimited" "$SCRATCH/limited" && grep -q "^status 1$" "$SCRATCH/limited" ||
    { cat "$SCRATCH/limited"; exit 1; }

unshare -rn true 2> /dev/null || { echo "skip  namespaces: needs a mount namespace of its own"; exit 0; }
# A rank in a network namespace of its own does not reach the socket of mpiexec.
told "this rank is in a network namespace of its own \([0-9]+; mpiexec's is [0-9]+\).*--network=host" mpiexec -n 2 unshare -rn "$SCRATCH/hello"
# With mpiexec inside as well, it does.
unshare -rn mpiexec -n 2 "$SCRATCH/hello"

# No /dev/null, nor anything else in /dev.
unshare -rm bash -euc 'mount -t tmpfs tmpfs /dev; mpiexec -n 3 "$SCRATCH/hello"; test -z "$(mpiexec -n 2 --stdin none cat)"' \
    > "$SCRATCH/bare" 2>&1 || { cat "$SCRATCH/bare"; exit 1; }
