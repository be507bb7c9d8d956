#!/bin/bash
# Announced receives under every setting of speculation and progress; where the system lets ranks copy from each other and where not.
set -euo pipefail
cd "$(dirname "$0")"
mpicc -O1 -Wall announced.c -o "$SCRATCH/announced"
for speculation in adaptive always off; do
    for progress in auto inline thread; do
        for ranks in 2 3; do
            echo "speculation $speculation, progress $progress, $ranks ranks"
            WHIMBREL_SPECULATION=$speculation WHIMBREL_PROGRESS=$progress timeout -s KILL 120 mpiexec -n $ranks "$SCRATCH/announced"
        done
    done
done
echo "no copies between processes"
WHIMBREL_SPECULATION=always WHIMBREL_SINGLE_COPY=off timeout -s KILL 120 mpiexec -n 2 "$SCRATCH/announced"

# The receiver that comes first announces, and its sender uses that.
report=$(WHIMBREL_SPECULATION=always WHIMBREL_REPORT=on mpiexec -n 2 "$SCRATCH/announced" 2>&1)
used=$(sed -n 's/.*receives were announced to their senders: \([0-9]*\) used.*/\1/p' <<< "$report")
test "${used:-0}" -gt 50 || { echo "$report"; echo "announcements used: ${used:-none}"; exit 1; }
if WHIMBREL_SPECULATION=off WHIMBREL_REPORT=on mpiexec -n 2 "$SCRATCH/announced" 2>&1 | grep -q announced; then
    echo "switched off, and yet something was announced"
    exit 1
fi
