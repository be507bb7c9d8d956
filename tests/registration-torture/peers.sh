#!/bin/bash
# timeout: 3600
# long: it prints what other libraries do
# The torture (torture.c) under this library and under MPICH and Open MPI (PyPI's wheels), through shared memory at 2 and 4 ranks, with the same seed:
# how many operations there were, and how many bytes were wrong.
#
#   peers.sh [OPERATIONS]    at 4 ranks, half as many at 2 (default: 200,000)
#
# Only this library's wrong bytes fail the test. What a peer does, whether it counts wrong bytes or comes to no end, is told. Under each library the
# torture must find the stand-in for one that keeps stale registrations (stale.c), else its count says nothing.
# PEERS: a folder with mpich/ and openmpi/ to use in place of what is installed under .cache. SEED: where the random numbers begin. LIMIT: longest time of
# one run, s.
set -uo pipefail
here=$(cd "$(dirname "$0")" && pwd)
operations=${1:-200000}
seed=${SEED:-$(date +%s)}
limit=${LIMIT:-500}
[ -z "${SCRATCH:-}" ] && { SCRATCH=$(mktemp -d) && trap 'rm -rf "$SCRATCH"' EXIT; }

# Prints a peer's folder, or why there is none.
peer() { # name of its folder, what installs it
    if [ -n "${PEERS:-}" ]; then
        [ -x "$PEERS/$1/bin/mpicc" ] && echo "$PEERS/$1" || { echo "there is no $PEERS/$1/bin/mpicc"; return 77; }
    else
        "$2"
    fi
}

failed=0
run() { # name, mpicc, mpiexec and its options
    local name=$1 compiler=$2 ranks status
    shift 2
    "$compiler" -g -O1 -Wall -pthread "$here/torture.c" -o "$SCRATCH/torture" || { echo "FAIL  $name does not compile torture.c"; failed=1; return; }
    for ranks in 2 4; do
        timeout --kill-after=5 "$limit" "$@" -n $ranks "$SCRATCH/torture" $((operations * ranks / 4)) "$seed" > "$SCRATCH/log" 2>&1 < /dev/null
        status=$?
        if grep -q 'wrong bytes$' "$SCRATCH/log"; then
            printf '%-10s %d ranks, seed %s: %s\n' "$name" $ranks "$seed" "$(grep -m 1 'wrong bytes$' "$SCRATCH/log")"
        else
            printf '%-10s %d ranks, seed %s: no count, status %d: %s\n' "$name" $ranks "$seed" $status "$(grep -v '^$' "$SCRATCH/log" | head -n 1)"
        fi
        [ "$name" != whimbrel ] || [ $status -eq 0 ] || failed=1
    done
    "$compiler" -O1 -Wall -shared -fPIC -pthread -o "$SCRATCH/libstale.so" "$here/stale.c" || { echo "FAIL  $name does not compile stale.c"; failed=1; return; }
    timeout --kill-after=5 "$limit" "$@" -n 2 env LD_PRELOAD="$SCRATCH/libstale.so" "$SCRATCH/torture" 4000 "$seed" > "$SCRATCH/log" 2>&1 < /dev/null
    if grep -q '^io_uring_' "$SCRATCH/log"; then
        echo "skip  stale: io_uring registers no memory here"
    elif grep -Eq ' [1-9][0-9]* wrong bytes$' "$SCRATCH/log"; then
        printf '%-10s 2 ranks, with stale registrations: %s\n' "$name" "$(grep -m 1 'wrong bytes$' "$SCRATCH/log")"
    else
        echo "FAIL  under $name stale registrations are not found: $(grep -v '^$' "$SCRATCH/log" | head -n 1)"
        failed=1
    fi
}

run whimbrel mpicc mpiexec
if home=$(peer mpich "$here/../abi/mpich"); then
    run MPICH "$home/bin/mpicc" "$home/bin/mpiexec"
else
    echo "skip  MPICH: $home"
fi
if home=$(peer openmpi "$here/../launch/openmpi"); then
    run "Open MPI" "$home/bin/mpicc" "$home/bin/mpiexec" --allow-run-as-root --oversubscribe --bind-to none
else
    echo "skip  Open MPI: $home"
fi
exit $failed
