#!/bin/bash
# Two processes in different process and mount namespaces share one file on a tmpfs, as they would a DAX device. They cannot see each other's processes.
# timeout: 300
. "$(dirname "$0")/common.inc"
build tests/vipl/pair.c
build tests/vipl/conformance.c
file=$(mktemp /dev/shm/vipl-pool-XXXXXX)
trap 'rm -f "$file"' EXIT
truncate -s 64M "$file"
apart="unshare --pid --mount --ipc --fork --kill-child"
$apart true 2>/dev/null || apart="unshare --user --map-root-user --pid --mount --ipc --fork --kill-child"
if ! $apart true 2>/dev/null; then
    echo "no namespaces here"
    exit 77
fi
$apart "$SCRATCH/pair" "file:$file" server > "$SCRATCH/server.out" & server=$!
$apart "$SCRATCH/pair" "file:$file" client > "$SCRATCH/client.out"
wait $server
cat "$SCRATCH/server.out" "$SCRATCH/client.out"
# Each is the first process of its namespace, or nearly.
grep -q "own pid [1-9], peer's pid [1-9]$" "$SCRATCH/server.out"
# An anonymous segment is out of reach there, and that is said.
"$SCRATCH/conformance" "file:$file" | tail -1
