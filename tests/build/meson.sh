#!/bin/sh
# Meson's dependency('mpi') finds the prefix by PKG_CONFIG_PATH alone, for C and C++, also in a folder with a space.
# timeout: 120
set -eu
command -v meson > /dev/null || { echo "needs meson"; exit 77; }
mkdir -p source
cat > source/meson.build <<'MESON'
project('user', 'c', 'cpp')
executable('user_c', 'user.c', dependencies: dependency('mpi', language: 'c'))
executable('user_cxx', 'user.cc', dependencies: dependency('mpi', language: 'cpp'))
MESON
printf '#include <mpi.h>\nint main(void) { int v, s; return MPI_Get_version(&v, &s) || v != 5; }\n' > source/user.c
cp source/user.c source/user.cc
rm -rf 'a prefix'
cp -a "$WHIMBREL_TEST_PREFIX" 'a prefix'
for prefix in "$WHIMBREL_TEST_PREFIX" "$PWD/a prefix"; do
    rm -rf out
    PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin PKG_CONFIG_PATH="$prefix/lib/pkgconfig" meson setup out source > log 2>&1 ||
        { cat log; exit 1; }
    ninja -C out > log 2>&1 || { cat log; exit 1; }
    out/user_c
    out/user_cxx
    ldd out/user_c | grep -q "$(readlink -f "$prefix")/lib/pkgconfig/../../lib/libmpi_abi.so.1\|$prefix/lib/libmpi_abi.so.1" || { ldd out/user_c; exit 1; }
done
