#!/bin/bash
# timeout: 3600
# variants: memory udp heap jemalloc mimalloc rc
# Messages from and to memory that changes under its addresses (torture.c), through shared memory, over UDP, which registers nothing, with the memory
# that processes map of each other, with other allocators, and over connections of the stand-in for an RDMA device (tests/rdma/standin). The program
# runs under any MPI:
#
#   run.sh [VARIANT...]      by default: memory
#
# WHIMBREL_TEST_SCALE: 1 some ten thousand operations, 2 or more a million through shared memory, and 200,000 of each other variant.
# MPICC, MPIEXEC: another library's. SEED: where the random numbers begin; each run says it.
set -uo pipefail
here=$(cd "$(dirname "$0")" && pwd)
scale=${WHIMBREL_TEST_SCALE:-1}
seed=${SEED:-$(date +%s)}
[ -z "${SCRATCH:-}" ] && { SCRATCH=$(mktemp -d) && trap 'rm -rf "$SCRATCH"' EXIT; }
mpiexec=${MPIEXEC:-mpiexec}
"${MPICC:-mpicc}" -g -O1 -Wall -pthread "$here/torture.c" -o "$SCRATCH/torture" || exit 1

allocator() { # name of its library
    local library
    library=$(PATH=$PATH:/usr/sbin:/sbin ldconfig -p | awk -v name="$1" '$1 == name && /x86-64|AArch64/ { print $NF; exit }')
    [ -n "$library" ] || { echo "there is no $1 here (make setup-test installs it)"; exit 77; }
    settings=(LD_PRELOAD="$library")
}

# What keeps registered what has changed is found; else a run that finds nothing says nothing.
stale() { # who keeps it, and the environment in which that is so
    local who=$1
    shift
    timeout 120 "$mpiexec" -n 2 env "${settings[@]}" "$@" "$SCRATCH/torture" 4000 "$seed" > "$SCRATCH/stale.log" 2>&1
    if grep -q '^io_uring_' "$SCRATCH/stale.log"; then
        echo "skip  stale: io_uring registers no memory here"
    elif grep -Eq ' [1-9][0-9]* wrong bytes' "$SCRATCH/stale.log"; then
        echo "ok    $who that keeps memory registered is found: $(grep 'wrong bytes' "$SCRATCH/stale.log")"
    else
        tail -n 20 "$SCRATCH/stale.log"
        echo "FAIL  $who that keeps memory registered is not found"
        return 1
    fi
}

stale_library() {
    "${MPICC:-mpicc}" -O1 -Wall -Wextra -shared -fPIC -pthread -o "$SCRATCH/libstale.so" "$here/stale.c" || return 1
    stale "a library" LD_PRELOAD="$SCRATCH/libstale.so"
}

device() {
    local built
    built=$("$here/../rdma/standin/build" "$SCRATCH/standin" 2>&1)
    case $? in
        0) settings=(LD_LIBRARY_PATH="$SCRATCH/standin${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}" WHIMBREL_FABRIC=verbs WHIMBREL_VERBS=rc
            WHIMBREL_SEND_IN_PLACE=always) ;;
        77) echo "$built" && exit 77 ;;
        *) echo "$built" && exit 1 ;;
    esac
}

failed=0
for variant in "${@:-memory}"; do
    settings=() options=() operations=10000 long=200000
    case $variant in
        memory) long=1000000; stale_library || failed=1 ;;
        udp) settings=(WHIMBREL_FABRIC=udp) ;;
        heap) settings=(WHIMBREL_MAP_MEMORY=on) options=(--shared-heap) ;;
        jemalloc) allocator libjemalloc.so.2 ;;
        mimalloc) allocator libmimalloc.so.2 ;;
        rc) device; stale "a device" STANDIN_STALE=1 || failed=1 ;;
        *) echo "there is no variant $variant"; exit 1 ;;
    esac
    [ "${scale%%.*}" -ge 2 ] && operations=$long
    for ranks in 2 4; do
        printf '%s, %d ranks, seed %s: ' "$variant" $ranks "$seed"
        timeout --kill-after=5 1500 env "${settings[@]}" "$mpiexec" "${options[@]}" -n $ranks "$SCRATCH/torture" $((operations * ranks / 4)) "$seed"
        status=$?
        [ $status -eq 0 ] || { echo "FAIL  $variant, $ranks ranks: status $status"; failed=1; }
    done
done
exit $failed
