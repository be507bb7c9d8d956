#!/bin/bash
# The rules of rules.md, and every function of vipl.h in some program of this folder.
# timeout: 600
. "$(dirname "$0")/common.inc"
build tests/vipl/conformance.c
"$SCRATCH/conformance"
missing=0
for name in $(grep -o 'Vipx\?[A-Z][A-Za-z]*(' "$ROOT/include/vipl.h" | tr -d '(' | sort -u); do
    grep -q "$name(" "$ROOT"/tests/vipl/*.[ch] || { echo "no program calls $name"; missing=1; }
done
for rule in $(grep -o 'RULE([a-z_]*' "$ROOT/tests/vipl/conformance.c" | sed 's/RULE(//' | grep -v '^call$' | sort -u); do
    grep -q "\`$rule\`" "$ROOT/tests/vipl/rules.md" || { echo "rules.md does not list $rule"; missing=1; }
done
exit $missing
