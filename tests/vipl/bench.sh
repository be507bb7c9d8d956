#!/bin/bash
# `whimbrel bench vipl` measures a prefix that has nothing but VIPL, without an MPI compiler or launcher, and says what another one lacks.
# timeout: 600
. "$(dirname "$0")/common.inc"
whimbrel=${WHIMBREL_TEST_PREFIX:-$ROOT/build}/bin/whimbrel
prefix=$SCRATCH/prefix
mkdir -p "$prefix/include" "$prefix/lib"
if "$whimbrel" bench vipl --quick --ours "$prefix" 2> "$SCRATCH/refusal"; then
    echo "an empty prefix was measured"
    exit 1
fi
grep -q "has no include/vipl.h and lib/libvipl.so" "$SCRATCH/refusal"
cp "$ROOT/include/vipl.h" "$prefix/include/"
cp "$SCRATCH/lib/libvipl.so.1" "$prefix/lib/"
ln -s libvipl.so.1 "$prefix/lib/libvipl.so"
"$whimbrel" bench vipl --quick --rounds 1 --ours "$prefix" --plots "$SCRATCH/plots" --json "$SCRATCH/vipl.json" > "$SCRATCH/figures"
cat "$SCRATCH/figures"
for part in 'One way of a message' 'One way, 1 sender' 'Receive descriptors' 'a handler is called'; do grep -q "$part" "$SCRATCH/figures"; done
for batch in 1 2 4 8 16 32 64; do grep -Eq "^\W*$batch\W.* %" "$SCRATCH/figures"; done
[ -s "$SCRATCH/plots/vipl.svg" ]
grep -q '"latency-allocated"' "$SCRATCH/vipl.json"
