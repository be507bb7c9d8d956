#!/bin/bash
# ARMCI-MPI 0.4, the one-sided layer of Global Arrays on MPI's windows: the programs that its `make check` runs. They put, get and accumulate
# blocks, strided patches and vectors, lock mutexes, fetch and add, and make groups and memory of groups; tests/mpi does the same with
# MPI's calls. Each compares what it reads with what was written, and ends with status 0 where all is right.
#
#   run.sh [REGEX]      names such as 'test_puts' or 'mpi/'
#   RANKS="2 6"         other numbers of ranks
name=armci
. "$(dirname "$0")/../common.sh"

debian_source armci-mpi 0.4-6 trixie
autotools
work_for armci-mpi-0.4

steps() {
    autoreconf --install && ./configure --disable-shared CC="$mpicc" MPICC="$mpicc" CFLAGS=-O1 && make -j"$jobs" && make -j"$jobs" checkprogs
}
build steps

programs() {
    make -s -C "$work" --eval 'programs: ; @echo $(TESTS)' programs | tr ' ' '\n' | grep -E "${1:-.}"
}

# judge RANKS PROGRAM
judge() {
    local log=$work/log-$1-${2//\//-} status start=$EPOCHREALTIME
    (cd "$work" && launch "$1" "./$2") > "$log" 2>&1
    status=$?
    verdict "armci [$1] ${2#tests/}" "status $status, $(((${EPOCHREALTIME/./} - ${start/./}) / 1000)) ms" [ "$status" = 0 ]
    [ "$status" = 0 ] || tail -12 "$log" | cut -c1-200 | sed 's/^/      | /'
}

for ranks in ${RANKS:-2 4}; do
    for program in $(programs "${1:-}"); do
        judge "$ranks" "$program"
    done
done
finish
