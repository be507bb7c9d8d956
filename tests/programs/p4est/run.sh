#!/bin/bash
# p4est 2.2, forests of adaptive octrees distributed over the ranks, and the library sc beneath it: all programs of their test folders,
# with assertions. They refine, balance, partition, search and number forests in two and three dimensions, write and load them through
# MPI-IO, keep arrays in shared memory of MPI_Win_allocate_shared, find out who sends to whom in eight ways, and compare what they get
# with what other ways or other numbers of ranks give. A program that finds a difference, or memory not given back, aborts.
#
#   run.sh [REGEX]      names of programs, such as 'p8est_test_.*ghost' or sc_test
#   RANKS="2 6"         other numbers of ranks
name=p4est
. "$(dirname "$0")/../common.sh"

debian_source p4est 2.2-3
autotools
work_for p4est-2.2

steps() {
    # The version, which is otherwise git's to tell, and of whatever repository this is in.
    export GIT_CEILING_DIRECTORIES=$cache
    for folder in . sc; do echo 2.2 > $folder/.tarball-version; done
    # Its configure scripts want a Fortran compiler, to learn how to call BLAS, which the library has no part of MPI for.
    sed -i 's/\(SC_MPI_CONFIG([^,]*\).*/\1)/' configure.ac sc/configure.ac
    sed -i 's/^SC_CHECK_BLAS_LAPACK(.*/AM_CONDITIONAL([$1_WITH_BLAS], [false])\nAM_CONDITIONAL([$1_WITH_LAPACK], [false])/' sc/config/sc_include.m4
    ./bootstrap && ./configure --enable-mpi --enable-debug --disable-shared CC="$mpicc" CFLAGS=-O1 &&
        make -j"$jobs" && make -j"$jobs" check TESTS=
}
build steps

mapfile -t programs < <(cd "$work" && ls {sc/,}test/*_test_* | grep -vE '\.' | grep -E "${1:-}")
[ ${#programs[@]} -gt 0 ] || { echo "p4est has no test $1"; exit 1; }
for ranks in ${RANKS:-2 3 5}; do
    rm -rf "$work/run-$ranks"
    mkdir "$work/run-$ranks"
    cd "$work/run-$ranks" || exit 1
    for program in "${programs[@]}"; do
        log=${program##*/}.log
        start=$EPOCHREALTIME
        launch "$ranks" "$work/$program" > "$log" 2>&1
        status=$?
        took_ms=$(((${EPOCHREALTIME/./} - ${start/./}) / 1000))
        verdict "p4est [$ranks] ${program##*/}" "status $status, $took_ms ms" \
            eval '[ $status -eq 0 ] && ! grep -qE "Abort|Assertion|Leaked" "$log"'
        [ $status -eq 0 ] || tail -12 "$log" | cut -c1-200 | sed 's/^/      | /'
    done
done
finish
