#!/bin/bash
# Random faults; WHIMBREL_TEST_SCALE=10 for a thousand. SEED=n repeats the same faults.
# timeout: 1200
. "$(dirname "$0")/common.inc"
build tests/vipl/faults.c
"$SCRATCH/faults" $((100 * ${WHIMBREL_TEST_SCALE:-1})) ${SEED:-}
