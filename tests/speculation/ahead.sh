#!/bin/bash
# A sender that is always 100 messages ahead, and a new tag for each message: announcements that come too late die out, also where no envelope comes twice.
# timeout: 600
set -euo pipefail
mpicc -O2 -Wall "$ROOT/bench/overlap/ahead.c" -o "$SCRATCH/ahead"
# 100 messages take a few hundred microseconds, or half a second where each rank waits for a core.
MESSAGES=5000
test "${WHIMBREL_TEST_SCALE:-1}" -lt 2 || MESSAGES=100000

# The report's announcements: sent, answered, crossed, for messages that needed none; pauses, receives in them, void ones.
counted() { # fabric, speculation, long messages of 100, room of the others' receives
    local report
    report=$(WHIMBREL_FABRIC=$1 WHIMBREL_SPECULATION=$2 WHIMBREL_REPORT=on WHIMBREL_REPORT_ENVELOPES=3 \
        timeout -s KILL 250 mpiexec -n 2 "$SCRATCH/ahead" "$SCRATCH/flag" $MESSAGES "$3" 200000 "$4" 2>&1) || { echo "$report" >&2; exit 1; }
    echo "$report" >&2
    sed -n 's/^  \([0-9]*\) receives were announced to their senders: \([0-9]*\) used, \([0-9]*\) crossed.*, \([0-9]*\) for messages.*/\1 \2 \3 \4/p;
        s/^  announcing paused \([0-9]*\) times, for \([0-9]*\) receives; \([0-9]*\) announcements.*/\1 \2 \3/p' <<< "$report" | tr '\n' ' '
}

check() { # what, fabric, long messages of 100, room of the others' receives, most announcements in vain
    local sent used crossed unused pauses suppressed voided
    read -r sent used crossed unused pauses suppressed voided <<< "$(counted "$2" adaptive "$3" "$4")"
    echo "$1: sent $sent, used $used, crossed $crossed, unused $unused, pauses $pauses, suppressed $suppressed, void $voided"
    test $((sent - used)) -le "$5" || { echo "$1: announcements in vain do not die out"; exit 1; }
    test "$pauses" -gt 0 && test "$suppressed" -gt 0 || { echo "$1: no pause was counted"; exit 1; }
}
# Without an end there are 1, 28 and 10 in each round of 100 messages.
check "one long message among short ones" shm 1 8 $((MESSAGES / 200))
check "short messages into long receives" shm 0 200000 $((MESSAGES / 50))
check "datagrams into long receives" udp 0 200000 $((MESSAGES / 50))

read -r sent _ <<< "$(counted shm off 1 8)"
test -z "$sent" || { echo "switched off, and yet $sent receives were announced"; exit 1; }
