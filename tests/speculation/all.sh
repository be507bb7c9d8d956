#!/bin/bash
# Announced receives under every setting of speculation, rendezvous and progress; where the system lets ranks copy from each other and where not.
# timeout: 240
set -euo pipefail
cd "$(dirname "$0")"
mpicc -O2 -Wall announced.c -o "$SCRATCH/announced"
run() { # name of the rendezvous, speculation, progress, ranks
    echo "rendezvous $1, speculation $2, progress $3, $4 ranks"
    WHIMBREL_RENDEZVOUS=$1 WHIMBREL_SPECULATION=$2 WHIMBREL_PROGRESS=$3 timeout -s KILL 120 mpiexec -n "$4" "$SCRATCH/announced"
}
for progress in auto inline thread; do
    for ranks in 2 3; do
        for speculation in adaptive always; do
            run sequence $speculation $progress $ranks
            run acks $speculation $progress $ranks
        done
        run sequence off $progress $ranks
    done
done
echo "no copies between processes"
for rendezvous in sequence acks; do
    WHIMBREL_RENDEZVOUS=$rendezvous WHIMBREL_SPECULATION=always WHIMBREL_SINGLE_COPY=off timeout -s KILL 120 mpiexec -n 2 "$SCRATCH/announced"
done

echo "datagrams"
for progress in auto inline thread; do
    for ranks in 2 3; do
        for speculation in adaptive always off; do
            WHIMBREL_FABRIC=udp WHIMBREL_SPECULATION=$speculation WHIMBREL_PROGRESS=$progress timeout -s KILL 120 mpiexec -n $ranks "$SCRATCH/announced"
        done
    done
done

# By acknowledgements nothing is announced between hosts: each transfer is pulled.
for ranks in 2 3; do
    report=$(WHIMBREL_FABRIC=udp WHIMBREL_RENDEZVOUS=acks WHIMBREL_SPECULATION=always WHIMBREL_REPORT=on timeout -s KILL 120 mpiexec -n $ranks "$SCRATCH/announced" 2>&1)
    if grep -q announced <<< "$report" || ! grep -q "pulled in datagrams" <<< "$report"; then
        echo "$report"
        echo "with acknowledgements something was announced between hosts, or nothing pulled"
        exit 1
    fi
done

# The receiver that comes first announces, and its sender uses that.
used() { # at least so often, with these arguments
    local least=$1 report used
    shift
    report=$(WHIMBREL_SPECULATION=always WHIMBREL_REPORT=on mpiexec -n 2 "$SCRATCH/announced" "$@" 2>&1)
    used=$(sed -n 's/.*receives were announced to their senders: \([0-9]*\) used.*/\1/p' <<< "$report")
    test "${used:-0}" -ge "$least" || { echo "$report"; echo "announcements used: ${used:-none}, $*"; exit 1; }
}
used 50
WHIMBREL_RENDEZVOUS=acks used 50
WHIMBREL_FABRIC=udp used 50
# 60 messages each; partitioned ones in two parts.
for kind in persistent any_source partitioned; do
    used 50 $kind
    WHIMBREL_FABRIC=udp used 50 $kind
done
if WHIMBREL_SPECULATION=off WHIMBREL_REPORT=on mpiexec -n 2 "$SCRATCH/announced" 2>&1 | grep -q announced; then
    echo "switched off, and yet something was announced"
    exit 1
fi
