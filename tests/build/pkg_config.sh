#!/bin/sh
# pkg-config finds the library under its three names, also after the prefix was moved.
set -eu
rm -rf moved
cp -a "$WHIMBREL_TEST_PREFIX" moved
printf '#include <mpi.h>\nint main(void) { int v, s; return MPI_Get_version(&v, &s) || v != 5; }\n' > main.c
rm -rf 'a moved'; cp -a moved 'a moved'
for prefix in "$WHIMBREL_TEST_PREFIX" "$PWD/moved" "$PWD/a moved"; do
    for name in whimbrel mpi mpi-c mpi-cxx mpi_abi; do
        export PKG_CONFIG_PATH="$prefix/lib/pkgconfig"
        # A shell reads the flags back, which escape spaces.
        eval "cc main.c -o main $(pkg-config --cflags --libs $name)"
        ./main
        found=$(ldd main | awk '/libmpi_abi/ { sub(/.*=> /, ""); sub(/ \(0x.*/, ""); print }')
        [ "$(readlink -f "$found")" = "$(readlink -f "$prefix/lib/libmpi_abi.so.1")" ]
    done
done
