#!/bin/bash
# timeout: 5400
# mpi4py 4.1.2, unmodified, built from its source distribution against the standard ABI with this library's mpicc:
# its benchmarks, then its own tests; then the same built module on MPICH's libmpi_abi.so.1.
#
#   mpi4py.sh [--prefix DIR] [--ranks "1 2 3 4"] [--no-peer] [MODULE...]
#   mpi4py.sh [--prefix DIR] --build     builds it where it is not there yet, and prints the path of its Python last
#
# MODULE is a name of its test folder without `test_` (p2p_buf, request, ...), with options of its runner behind it if need be
# ("msgspec -x TestMessageSimple"), or `all`: its whole suite in one run per number of ranks, and every reason for
# which a test is left out must stand in mpi4py_skips.md. Without a MODULE it is `all`: at 2 ranks without the peer, and
# with WHIMBREL_TEST_SCALE of 2 or more at all numbers of ranks and with it.
# Status 77: nothing could be fetched.
set -uo pipefail
root=$(cd "$(dirname "$0")/../.." && pwd)
prefix=$root/build
ranks=
peer=yes
version=4.1.2
run_limit_s=${RUN_LIMIT_S:-120}
cache=$root/.cache/mpi4py
modules=()
only_build=

while [ $# -gt 0 ]; do
    case $1 in
        --prefix) prefix=$(cd "$2" && pwd) || exit 2; shift ;;
        --ranks) ranks=$2; shift ;;
        --no-peer) peer=no ;;
        --build) only_build=yes ;;
        --) shift; modules+=("$@"); break ;;
        -*) sed -n '3,14s/^# \{0,1\}//p' "$0" >&2; exit 2 ;;
        *) modules+=("$1") ;;
    esac
    shift
done
scale=${WHIMBREL_TEST_SCALE:-1}
if [ ${#modules[@]} -eq 0 ]; then
    modules=(all)
    [ "${scale%%.*}" -ge 2 ] || { ranks=${ranks:-2}; peer=no; }
fi

[ -n "$ranks" ] || case ${modules[0]} in all*) ranks="1 2 3 4 5 8" ;; *) ranks="1 2 3 4" ;; esac

[ -x "$prefix/bin/mpicc_abi" ] || { echo "there is no mpicc_abi in $prefix/bin; run make first"; exit 1; }

# --- source, and a build per header

mkdir -p "$cache"
source=$cache/mpi4py-$version
if [ ! -d "$source" ]; then
    echo "fetching mpi4py $version"
    python3 -m venv "$cache/fetch" &&
        "$cache/fetch/bin/python" -m pip download --quiet --disable-pip-version-check --no-deps --no-binary mpi4py \
            --dest "$cache" "mpi4py==$version" &&
        tar -C "$cache" -xf "$cache/mpi4py-$version.tar.gz" || { echo "mpi4py $version cannot be fetched"; exit 77; }
fi
header=$(sha256sum < "$prefix/include/mpi.h" | cut -c1-16)
venv=$cache/venv-$header
python=$venv/bin/python
if [ ! -e "$venv/built" ]; then
    echo "building mpi4py $version with $prefix/bin/mpicc_abi (two minutes)"
    rm -rf "$venv"
    python3 -m venv "$venv"
    if ! MPI4PY_BUILD_MPIABI=1 MPI4PY_BUILD_MPICC=$prefix/bin/mpicc_abi CFLAGS=-O1 \
        "$venv/bin/python" -m pip install --disable-pip-version-check --no-binary mpi4py "$cache/mpi4py-$version.tar.gz" \
        > "$cache/build.log" 2>&1; then
        tail -40 "$cache/build.log"
        echo "mpi4py does not build"
        exit 1
    fi
    # With these fewer tests are left out; without, the suite runs as well.
    "$venv/bin/python" -m pip install --quiet --disable-pip-version-check numpy cffi dill pyyaml >> "$cache/build.log" 2>&1 ||
        echo "numpy, cffi, dill and pyyaml cannot be had: tests that want them are left out"
    touch "$venv/built"
fi

if [ -n "$only_build" ]; then
    echo "$python"
    exit 0
fi

# --- runs

failures=()
# verdict NAME LOG STATUS DETAIL
verdict() {
    if [ "$3" -eq 0 ]; then
        printf 'ok    %-34s %s\n' "$1" "$4"
    else
        printf 'FAIL  %-34s status %s\n' "$1" "$3"
        tail -40 "$2" | sed 's/^/      | /'
        failures+=("$1")
    fi
}

# Runs python on $1 ranks under the library of $home; the rest are its arguments.
job() {
    local n=$1
    shift
    LD_LIBRARY_PATH=$home/lib timeout --kill-after=5 "$run_limit_s" "$home/bin/mpiexec" -n "$n" "$python" "$@" < /dev/null
}

benchmarks() {
    local log=$cache/bench.log
    for command in helloworld "ringtest --loop 100" "pingpong --max-size 1048576"; do
        # shellcheck disable=SC2086 # a command and its options
        job 4 -m mpi4py.bench $command > "$log" 2>&1
        local status=$?
        [ "${command%% *}" != helloworld ] || [ "$(grep -c 'Hello, World' "$log")" -eq 4 ] || status=1
        verdict "$label bench ${command%% *} [4]" "$log" $status "$(grep -v '^#' "$log" | tail -1)"
    done
}

# The reasons for which tests were left out in LOG.
reasons() {
    grep -oE "skipped '[^']*'" "$1" | sed "s/skipped '\(.*\)'/\1/" | sort -u
}
known=$cache/skips
sed -nE 's/^\| `([^`]*)` \|.*/\1/p' "$root/tests/abi/mpi4py_skips.md" > "$known"

# Every rank prints how many tests it ran and that they passed.
tests() {
    local log=$cache/test.log wanted module options n status oks skipped
    for wanted in "${modules[@]}"; do
        read -r module options <<< "$wanted"
        for n in $1; do
            # shellcheck disable=SC2206 # a list of words
            local choice=(-i "test_$module(\.|\$)" $options)
            [ "$module" != all ] || { choice=(-v $options); run_limit_s=${RUN_LIMIT_S:-1800}; }
            (cd "$source/test" && job "$n" main.py -f "${choice[@]}") > "$log" 2>&1
            status=$?
            oks=$(grep -o OK "$log" | wc -l) # the ranks share the lines
            skipped=$(grep -oE 'skipped=[0-9]+' "$log" | head -1)
            if [ "$module" = all ] && unknown=$(reasons "$log" | grep -vxFf "$known"); then
                echo "left out for a reason that tests/abi/mpi4py_skips.md does not have: $unknown" >> "$log"
                status=1
            fi
            if [ $status -eq 0 ] && { [ "$oks" -ne "$n" ] || grep -qE 'Ran 0 tests' "$log"; }; then
                status=1
            fi
            grep -oE "skipped '[^']*'" "$log" | sed "s/skipped '\(.*\)'/\1/" | sort | uniq -c |
                while read -r count reason; do echo "skip  $label test_$module [$n], $count on all ranks: $reason"; done
            verdict "$label test_$module [$n]" "$log" $status "$(grep -oE 'Ran [0-9]+ tests in [0-9.]+s' "$log" | tail -1) $skipped"
        done
    done
}

home=$prefix
label=$(basename "$prefix")
[ "$prefix" != "$root/build" ] || label=whimbrel
echo "library: $(LD_LIBRARY_PATH=$home/lib "$python" -c 'from mpi4py import MPI; print(MPI.Get_library_version().splitlines()[0])' 2>&1 | tail -1)"
benchmarks
tests "$ranks"

if [ $peer = yes ]; then
    if home=$("$root/tests/abi/mpich"); then
        label=mpich
        echo "library: $(LD_LIBRARY_PATH=$home/lib "$python" -c 'from mpi4py import MPI; print(MPI.Get_library_version().splitlines()[0])' 2>&1 | tail -1)"
        benchmarks
        case ${modules[0]} in all*) tests "1 2" ;; *) tests 2 ;; esac
    else
        echo "skip  the same module on MPICH: MPICH's wheel cannot be installed"
    fi
fi

if [ ${#failures[@]} -gt 0 ]; then
    printf '%d failed:\n' ${#failures[@]}
    printf '  %s\n' "${failures[@]}"
    exit 1
fi
echo "all passed"
