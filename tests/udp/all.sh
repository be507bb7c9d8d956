#!/bin/bash
# timeout: 900
# The programs of the other tests with datagrams between all ranks, in every mode of protection and progress. WHIMBREL_TEST_SCALE: from 2 on all that
# run on up to four ranks and want no surroundings of their own, else a few.
set -euo pipefail
cd "$(dirname "$0")/../programs-c"
export WHIMBREL_FABRIC=udp
program() { # NAME RANKS…
    mpicc -O1 -Wall "$1.c" -o "$SCRATCH/$1" -lm
    for ranks in "${@:2}"; do
        echo "$1, $ranks ranks"
        timeout -s KILL 120 mpiexec -n "$ranks" "$SCRATCH/$1"
    done
}
all() {
    for source in *.c; do
        ranks=$(sed -nE 's/^[ /*]*ranks: ([0-9 ]+).*/\1/p' "$source" | tr ' ' '\n' | awk '$1 <= 4 && $1 > most { most = $1 } END { print most }')
        if [ "${ranks:-1}" -gt 1 ] && ! grep -qE "^[ /*]*(launcher|env|status|cflags|output): " "$source"; then
            program "${source%.c}" "$ranks"
        fi
    done
}
scale=${WHIMBREL_TEST_SCALE:-1}
if [ "${scale%%.*}" -ge 2 ]; then
    all
fi
program p2p_sizes 2
program p2p_random 3 7
program p2p_random_tight 3
program p2p_cancel 2
program p2p_cancel_crowded 2
program p2p_polled_crowd 2
program p2p_order 2 4
program p2p_probe 3
program p2p_ssend 2
program p2p_truncate 2
program p2p_wildcards 2
program p2p_unexpected 2
program p2p_persistent 4
program partitioned 2
program datatypes 2
program coll_values 4
program coll_random 5
program comm_inter 4
program session 3
program thread_mixed 2
for protection in crc encrypt; do
    for progress in auto inline thread; do
        echo "protection $protection, progress $progress"
        WHIMBREL_PROTECTION=$protection WHIMBREL_PROGRESS=$progress timeout -s KILL 120 mpiexec -n 3 "$SCRATCH/p2p_random"
    done
done
# The report says how messages went.
report=$(WHIMBREL_REPORT=on timeout -s KILL 120 mpiexec -n 2 "$SCRATCH/p2p_sizes" 2>&1)
grep -q "eager, in datagrams" <<< "$report" && grep -q "rendezvous, pulled in datagrams" <<< "$report" || { echo "$report"; exit 1; }
