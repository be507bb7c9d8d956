#!/bin/sh
# The shared object exports each function of the table twice and nothing else.
set -eu
library=$WHIMBREL_TEST_PREFIX/lib/libmpi_abi.so.1
tail -n +2 "$ROOT/abi/functions.tsv" | cut -f 1 | sed 'p; s/^/P/' | sort > wanted
nm --dynamic --defined-only "$library" | awk '{ print $3 }' | sort > exported
diff wanted exported
[ "$(wc -l < exported)" -eq 1328 ]
objdump -p "$library" | grep -q 'SONAME *libmpi_abi.so.1$'
for link in libmpi_abi.so libmpi_abi.so.0; do
    [ "$(readlink -f "$WHIMBREL_TEST_PREFIX/lib/$link")" = "$(readlink -f "$library")" ]
done
