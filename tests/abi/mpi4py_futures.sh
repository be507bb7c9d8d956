#!/bin/bash
# timeout: 900
# mpi4py.futures, whose manager is a thread beside the one that initialized MPI: the tests and demonstrations of its source distribution, with the ranks
# of the job as the pool (`-m mpi4py.futures`), and with workers that each pool spawns.
#
#   mpi4py_futures.sh [DEMO-OR-TEST...]
set -uo pipefail
root=${ROOT:-$(cd "$(dirname "$0")/../.." && pwd)}
prefix=${WHIMBREL_TEST_PREFIX:-$root/build}
scratch=${SCRATCH:-$(mktemp -d)}
cache=$root/.cache/mpi4py
scale=${WHIMBREL_TEST_SCALE:-1}
wanted=("$@")

# Builds the module, if it is not there yet.
"$root/tests/abi/mpi4py.sh" --prefix "$prefix" --no-peer --ranks 1 status > "$scratch/mpi4py.log" 2>&1 || {
    status=$?
    tail -20 "$scratch/mpi4py.log"
    exit $status
}
python=$cache/venv-$(sha256sum < "$prefix/include/mpi.h" | cut -c1-16)/bin/python
source=$(ls -d "$cache"/mpi4py-*/ | tail -1)
demos=$source/demo/futures
failed=0

chosen() { [ ${#wanted[@]} -eq 0 ] || [[ " ${wanted[*]} " == *" $1 "* ]]; }

# job NAME RANKS WHAT-IT-PRINTS ARGUMENTS...
job() {
    local name=$1 ranks=$2 printed=$3 status
    shift 3
    chosen "$name" || return 0
    (cd "$scratch" && PYTHONPATH=$demos LD_LIBRARY_PATH=$prefix/lib timeout --kill-after=5 240 \
        "$prefix/bin/mpiexec" -n "$ranks" "$python" "$@" < /dev/null > "$scratch/log" 2>&1)
    status=$?
    if [ $status -eq 0 ] && grep -aqE -- "$printed" "$scratch/log"; then
        echo "ok    $name, $ranks ranks: $(grep -aE -- "$printed" "$scratch/log" | tail -1 | tr -d "\000")"
    else
        echo "FAIL  $name, $ranks ranks: status $status, wants /$printed/"
        tail -40 "$scratch/log" | sed 's/^/      | /'
        failed=1
    fi
}

# Demonstrations. The first rank runs the program, the others work for it.
for ranks in 2 3; do
    job run_hello $ranks "Hello, World! I am worker" -m mpi4py.futures "$demos/run_hello.py"
    job run_cpi $ranks "3\.14159" -m mpi4py.futures "$demos/run_cpi.py"
    job run_primes $ranks "is prime: True" -m mpi4py.futures "$demos/run_primes.py"
done
# Each rank that makes a pool spawns its workers.
job spawn_hello 1 "Hello, World! I am worker" "$demos/run_hello.py"
job spawn_cpi 1 "3\.14159" "$demos/run_cpi.py"
job spawn_primes 1 "is prime: True" "$demos/run_primes.py"
job spawn_futures 1 "^OK" "$demos/test_futures.py" -q
[ "${scale%%.*}" -lt 2 ] || job spawn_futures 2 "^OK" "$demos/test_futures.py" -q
# The whole of its tests, by the pool of the command line; two ranks exercise what more do not.
job test_futures 2 "^OK" -m mpi4py.futures "$demos/test_futures.py" -q
job test_futures 1 "^OK" -m mpi4py.futures "$demos/test_futures.py" -q
[ "${scale%%.*}" -lt 2 ] || job test_futures 4 "^OK" -m mpi4py.futures "$demos/test_futures.py" -q
# mpi4py.util.pool over threads, and over processes that it spawns.
job test_util_pool 1 "^OK" "$source/test/main.py" -i test_util_pool
exit $failed
