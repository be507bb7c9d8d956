#!/bin/sh
# The shared object exports each function of the ABI, and each that the standard has removed, twice, and nothing else.
set -eu
library=$WHIMBREL_TEST_PREFIX/lib/libmpi_abi.so.1
for table in functions removed; do tail -n +2 "$ROOT/abi/$table.tsv"; done | cut -f 1 | sed 'p; s/^/P/' | sort > wanted
nm --dynamic --defined-only "$library" | awk '{ print $3 }' | sort > exported
diff wanted exported
[ "$(wc -l < exported)" -eq 1348 ]
objdump -p "$library" | grep -q 'SONAME *libmpi_abi.so.1$'
for link in libmpi_abi.so libmpi_abi.so.0; do
    [ "$(readlink -f "$WHIMBREL_TEST_PREFIX/lib/$link")" = "$(readlink -f "$library")" ]
done
