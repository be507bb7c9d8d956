#!/bin/sh
# A job that asks for RDMA devices on a machine that has none ends with a line that says why.
set -eu
if whimbrel info --fabrics | sed '1,/^verbs/d' | grep -q ': usable'; then
    echo "skipped: this machine has an RDMA device"
    exit 77
fi
mpicc "$ROOT/tests/rdma/waits.c" -o "$SCRATCH/waits"
if WHIMBREL_FABRIC=verbs mpiexec -n 2 "$SCRATCH/waits" talk >"$SCRATCH/said" 2>&1; then
    echo "it ran all the same"
    exit 1
fi
cat "$SCRATCH/said"
grep -q 'MPI_Init failed.*WHIMBREL_FABRIC=verbs: ' "$SCRATCH/said"
