#!/bin/sh
# `make install` lays the whole prefix out under DESTDIR and PREFIX.
# timeout: 600
set -eu
rm -rf stage
make -C "$ROOT" install DESTDIR="$PWD/stage" PREFIX=/opt/whimbrel > log 2>&1 || { cat log; exit 1; }
for file in bin/mpicc bin/mpicxx bin/mpicc_abi bin/mpicxx_abi bin/mpiexec bin/mpirun bin/whimbrel include/mpi.h include/mpi_fint.h lib/libmpi_abi.so \
    lib/libmpi_abi.so.0 lib/libmpi_abi.so.1 lib/pkgconfig/whimbrel.pc lib/pkgconfig/mpi.pc lib/pkgconfig/mpi_abi.pc lib/pkgconfig/ompi-c.pc \
    share/whimbrel/valgrind.supp; do
    [ -e "stage/opt/whimbrel/$file" ] || { echo "missing: $file"; exit 1; }
done
