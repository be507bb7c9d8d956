#!/bin/bash
# HDF5 1.10.8, parallel: the tests of its testpar/ folder, which write and read files through MPI-IO, with collective and independent
# transfers of selections as derived datatypes, collective metadata, filtered chunks, and a file left open where a program ends without
# MPI_Finalize. Each has a verdict of its own, such as "PHDF5 tests finished with no errors", and a status. Then its benchmark h5perf
# writes and reads contiguous and interleaved blocks, of one and two dimensions, by independent and collective calls, of MPI-IO and of
# HDF5, and verifies what it reads.
#
#   run.sh [PROGRAM...]     such as t_mpi testphdf5 h5perf; by default all
#   RANKS="2 6"             other numbers of ranks
name=hdf5
. "$(dirname "$0")/../common.sh"

debian_source hdf5 1.10.8+repack1-1
work_for hdf5-1.10.8

# What each says when nothing is wrong; of t_bigio, which aborts otherwise, the last of what it does.
tests=(t_mpi testphdf5 t_cache t_cache_image t_pread t_pshutdown t_prestart t_init_term t_shapesame t_filters_parallel t_bigio t_pflush1 t_pflush2)
declare -A says=(
    [t_mpi]='MPI tests finished with no errors'
    [testphdf5]='PHDF5 tests finished with no errors'
    [t_cache]='metadata cache tests finished with no failures'
    [t_cache_image]='metadata cache image tests finished with no failures'
    [t_pread]='Collective file open optimization tests finished with no failures'
    [t_shapesame]='Shape Same tests finished with no errors'
    [t_filters_parallel]='All Parallel Filters tests passed'
    [t_bigio]='Read Testing Dataset4 with Point selection'
    [t_pshutdown]=PASSED [t_prestart]=PASSED [t_init_term]=PASSED [t_pflush1]=PASSED [t_pflush2]=PASSED)
# Two do nothing below three ranks, and one of them frees a datatype then that it has not made.
declare -A least=([t_cache]=3 [t_pread]=3)
# This one takes as long as all others together.
declare -A only=([t_cache_image]=3)

steps() {
    ./configure --enable-parallel --disable-shared --disable-fortran --disable-cxx --disable-hl --enable-build-mode=production \
        CC="$mpicc" CFLAGS=-O1 &&
        make -j"$jobs" -C src && make -j"$jobs" -C test libh5test.la && make -j"$jobs" -C testpar "${tests[@]}" &&
        make -j"$jobs" -C tools/lib libh5tools.la && make -j"$jobs" -C tools/src/h5perf h5perf
}
build steps

# start RANKS PROGRAM [ARGUMENT...]: sets log, status and took_ms. In the folder of that number of ranks t_prestart finds the file of
# t_pshutdown, t_pflush2 that of t_pflush1, and t_cache_image itself, which it starts once more.
start() {
    local started=$EPOCHREALTIME
    log=$2.log
    launch "$1" "./${@:2}" > "$log" 2>&1
    status=$?
    took_ms=$(((${EPOCHREALTIME/./} - ${started/./}) / 1000))
}

# judge GOOD NAME: GOOD is yes or no.
judge() {
    verdict "$2" "status $status, $took_ms ms" [ "$1" = yes ]
    [ "$1" = yes ] || grep -vE ' PASSED|^$' "$log" | tail -20 | cut -c1-200 | sed 's/^/      | /'
}

programs=("$@")
[ ${#programs[@]} -gt 0 ] || programs=("${tests[@]}" h5perf)
for ranks in ${RANKS:-2 3 4 6}; do
    rm -rf "$work/run-$ranks"
    mkdir "$work/run-$ranks"
    cd "$work/run-$ranks" || exit 1
    ln -s "${tests[@]/#/$work/testpar/}" "$work/tools/src/h5perf/h5perf" .
    for program in "${programs[@]}"; do
        [ "$ranks" -ge "${least[$program]:-1}" ] && [ "$ranks" -eq "${only[$program]:-$ranks}" ] || continue
        if [ "$program" = h5perf ]; then
            # Blocks of each rank in turn are views of strided datatypes. Sizes are bytes of each rank, of a buffer and of a block.
            for pattern in "" -I -g "-g -I"; do
                [[ $pattern != -g* ]] && sizes="-e 256K -x 64K -X 128K -B 1K" || sizes="-e 128 -x 32 -X 64 -B 8"
                for collective in "" -C; do
                    # shellcheck disable=SC2086 # words
                    start "$ranks" h5perf -p "$ranks" -P "$ranks" -A mpiio,phdf5 -D v -d 2 -i 2 $sizes $pattern $collective
                    [ "$status" -eq 0 ] && [ "$(grep -c 'Read Open-Close' "$log")" -eq 4 ] && ! grep -qiE 'error|fail' "$log" && good=yes || good=no
                    judge $good "hdf5 [$ranks] h5perf${pattern:+ $pattern}${collective:+ $collective}"
                done
            done
            continue
        fi
        # This one ends by _exit(1), without MPI_Finalize: what it flushed must be there all the same.
        [ "$program" = t_pflush1 ] && wanted=1 || wanted=0
        start "$ranks" "$program"
        [ "$status" -eq $wanted ] && grep -qF "${says[$program]}" "$log" && ! grep -qE 'FAILED|\*\*\* .*ERROR' "$log" && good=yes || good=no
        judge $good "hdf5 [$ranks] $program"
    done
done
finish
