#!/bin/bash
# The report counts which way collectives went; with WHIMBREL_COLLECTIVE_SLOTS=off none goes through shared lines or slots.
set -euo pipefail
mpicc -O2 -Wall "$ROOT/bench/programs/collectives.c" -o "$SCRATCH/collectives"

# Collectives through slots, through lines, and by messages, as the report has them.
counted() { # more environment
    local report
    report=$(env "$@" WHIMBREL_REPORT=on timeout -s KILL 50 mpiexec -n 3 "$SCRATCH/collectives" 2 bcast,scan,alltoallv,barrier,ireduce 8 4096 524288 2>&1) ||
        { echo "$report" >&2; exit 1; }
    sed -n 's/^  collectives, on all ranks together: \([0-9]*\) through slots, \([0-9]*\) through lines, \([0-9]*\) by messages$/\1 \2 \3/p' <<< "$report"
}

read -r slots lines messages <<< "$(counted A=1)"
echo "on: $slots $lines $messages"
test "$slots" -gt 100 && test "$lines" -gt 50 && test "$messages" -gt 50
read -r slots lines messages <<< "$(counted WHIMBREL_COLLECTIVE_SLOTS=off)"
echo "off: $slots $lines $messages"
test "$slots" = 0 && test "$lines" = 0 && test "$messages" -gt 200
