#!/bin/bash
# The examples do what they say.
# timeout: 300
. "$(dirname "$0")/common.inc"
for name in pingpong ring sendfile; do build examples/vipl/$name.c; done
"$SCRATCH/pingpong" 4 2000
"$SCRATCH/pingpong" 10000 500
"$SCRATCH/ring" 4 500
head -c 3000001 /dev/urandom > "$SCRATCH/in"
"$SCRATCH/sendfile" serve "file $$" "$SCRATCH/out" & server=$!
"$SCRATCH/sendfile" send "file $$" "$SCRATCH/in"
wait $server
cmp "$SCRATCH/in" "$SCRATCH/out"
