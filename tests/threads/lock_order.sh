#!/bin/bash
# timeout: 900
# The programs with threads and callbacks on a library that checks the order of its locks, and that it calls the program back while it holds none
# (crates/engine/src/order.rs); a program that breaks the order ends there with the two levels.
set -euo pipefail
root=${ROOT:-$(cd "$(dirname "$0")/../.." && pwd)}
prefix=${WHIMBREL_TEST_PREFIX:-$root/build}
scratch=${SCRATCH:-$(mktemp -d)}
target=${CARGO_TARGET_DIR:-$root/target}

# The development profile has the checks, and cargo's own tests have built most of it: with the features that the launcher adds.
(cd "$root" && "${CARGO:-cargo}" build --quiet --package whimbrel-abi --package whimbrel-cli --lib --bin mpiexec)
rm -rf "$scratch/prefix"
cp -a "$prefix" "$scratch/prefix"
install -m 755 "$target/debug/libabi.so" "$scratch/prefix/lib/libmpi_abi.so.1"
grep -q 'is taken while those of levels' "$scratch/prefix/lib/libmpi_abi.so.1" || { echo "the library does not check the order of its locks"; exit 1; }

run() { # NAME RANKS [VARIABLE=VALUE]
    "$scratch/prefix/bin/mpicc" -O1 -Wall -pthread "$root/tests/programs-c/$1.c" -o "$scratch/$1" -lm
    echo "$1, $2 ranks ${3:-}"
    env "${3:-A=}" timeout -s KILL 240 "$scratch/prefix/bin/mpiexec" -n "$2" "$scratch/$1"
}
for program in callbacks thread_requests thread_start_testany thread_vcis thread_mixed thread_comms partitioned_threads p2p_generalized p2p_persistent \
    attributes errhandlers session comm_idup comm_inter coll_interleave p2p_cancel p2p_modes tool_events; do
    run $program 2
done
for program in thread_requests thread_mixed p2p_modes session; do
    run $program 2 WHIMBREL_FABRIC=udp
done
