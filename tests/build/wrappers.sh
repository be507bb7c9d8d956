#!/bin/sh
# mpicc and mpicxx: what they print, what they pass on, and that the prefix can be moved.
set -eu
prefix=$(readlink -f "$WHIMBREL_TEST_PREFIX")
expect() { # expect WANTED GOT
    [ "$1" = "$2" ] || { printf 'wanted: %s\n   got: %s\n' "$1" "$2"; exit 1; }
}
link="-L$prefix/lib -Wl,-rpath,$prefix/lib -Wl,--enable-new-dtags -lmpi_abi"
unset MPICC_CC MPICXX_CXX || true
expect "cc -I$prefix/include $link" "$(mpicc -show)"
expect "c++ -I$prefix/include $link" "$(mpicxx -show)"
expect "cc x.c -o x -I$prefix/include $link" "$(mpicc -showme x.c -o x)"
expect "cc -c x.c -I$prefix/include" "$(mpicc_abi -show -c x.c)"
expect "c++ -E x.cc -I$prefix/include" "$(mpicxx_abi -show -E x.cc)"
expect "-I$prefix/include" "$(mpicc --showme:compile)"
expect "$link" "$(mpicc -showme:link)"
expect "$prefix/include" "$(mpicc --showme:incdirs)"
expect "$prefix/lib" "$(mpicc --showme:libdirs)"
expect "mpi_abi" "$(mpicc --showme:libs)"
expect "cc -I$prefix/include" "$(mpicc -compile_info)"
expect "cc -I$prefix/include $link" "$(mpicc -link_info)"
expect "tcc" "$(mpicc -cc=tcc --showme:command)"
expect "ccache gcc" "$(MPICC_CC='ccache gcc' mpicc --showme:command)"
expect "$(cc -dumpmachine)" "$(mpicc -dumpmachine)"
expect "$(cc --version)" "$(mpicc --version)"
mpicc -v 2>/dev/null
if mpicc --showme:nonsense 2>/dev/null; then exit 1; fi

mkdir -p 'with space'
cat > 'with space/main.c' <<'C'
#include <mpi.h>
#include <stdio.h>
int main(void) {
    int version = 0, subversion = 0;
    MPI_Get_version(&version, &subversion);
    printf("%s %d.%d\n", TEXT, version, subversion);
    return 0;
}
C
mpicc '-DTEXT="a b"' 'with space/main.c' -o 'with space/main'
expect "a b 5.0" "$('with space/main')"
mpicc -DTEXT='""' -MM 'with space/main.c' > /dev/null
printf 'int main(void) { return 0; }\n' | mpicc -x c - -o from_stdin
./from_stdin

# Through a link elsewhere, and from a copy of the prefix in a folder with a space.
ln -sf "$prefix/bin/mpicc" elsewhere
expect "$prefix/include" "$(./elsewhere --showme:incdirs)"
rm -rf 'moved prefix'
cp -a "$prefix" 'moved prefix'
'moved prefix/bin/mpicc' -DTEXT='"moved"' 'with space/main.c' -o moved_main
expect "moved 5.0" "$(./moved_main)"
ldd moved_main | grep -q "$PWD/moved prefix/lib/libmpi_abi.so.1"

# What is printed there is read back as the same words, by a shell and by CMake.
expect "cc -I\"$PWD/moved prefix/include\"" "$('moved prefix/bin/mpicc' -compile_info)"
eval "$('moved prefix/bin/mpicc' -show '-DTEXT="shown"' 'with space/main.c' -o shown_main)"
expect "shown 5.0" "$(./shown_main)"
eval "cc '-DTEXT=\"parts\"' 'with space/main.c' -o parts_main $('moved prefix/bin/mpicc' -showme:compile) $('moved prefix/bin/mpicc' -showme:link)"
expect "parts 5.0" "$(./parts_main)"
