#!/bin/sh
# timeout: 300
# The ABI both ways: built with MPICH's mpicc_abi and run on this library, built with ours and run on MPICH's.
set -eu
root=${ROOT:-$(cd "$(dirname "$0")/../.." && pwd)}
ours=${WHIMBREL_PREFIX:-$root/build}
scratch=${SCRATCH:-$root/.cache/abi}
mkdir -p "$scratch"

status=0
mpich=$("$root/tests/abi/mpich") || status=$?
if [ $status -ne 0 ]; then
    echo "$mpich"
    exit $status
fi

# cross BUILDER RUNNER: prefixes
cross() {
    binary=$scratch/conversation-$(basename "$1")
    "$1/bin/mpicc_abi" -O1 "$root/tests/abi/conversation.c" -o "$binary"
    for ranks in 1 2 4; do
        output=$(LD_LIBRARY_PATH=$2/lib timeout 60 "$2/bin/mpiexec" -n $ranks "$binary" 2>&1) || {
            printf '%s\nFAIL: built with %s, run on %s, %s ranks\n' "$output" "$1" "$2" $ranks
            exit 1
        }
        echo "built with $(basename "$1"), $output"
        case $2:$output in
            "$mpich:"*MPICH*) ;;
            "$mpich:"* | *MPICH*) echo "FAIL: this ran on the wrong library"; exit 1 ;;
        esac
    done
}

cross "$mpich" "$mpich"
cross "$mpich" "$ours"
cross "$ours" "$mpich"
cross "$ours" "$ours"
