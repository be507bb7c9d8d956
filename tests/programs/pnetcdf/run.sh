#!/bin/bash
# PnetCDF 1.12.3, netCDF files through MPI-IO: the C programs of its test/ folder and its examples/C, alone and in parallel. They write
# and read arrays, subarrays, strided and permuted ones, all of netCDF's types from all of C's, by blocking, nonblocking and buffered
# calls, through collective and independent file access with file views of derived datatypes.
# A test prints "pass" when all it read is what was written, and an example nothing; each ends with status 0. Then ncvalidator
# looks at the file.
#
#   run.sh [REGEX]      names such as 'nonblocking/' or 'testcases/varn'
#   RANKS="2 6"         other numbers of ranks
name=pnetcdf
. "$(dirname "$0")/../common.sh"

debian_source pnetcdf 1.12.3-1
autotools
work_for pnetcdf-1.12.3

steps() {
    autoreconf --install &&
        ./configure --disable-fortran --disable-cxx --disable-shared MPICC="$mpicc" CFLAGS=-O1 &&
        make -j"$jobs" -C src && make -j"$jobs" -C test tests && make -j"$jobs" -C examples/C tests
}
build steps

# programs FOLDER: what it builds there, writers before their readers.
programs() {
    make -s -C "$work/$1" --eval 'programs: ; @echo $(check_PROGRAMS)' programs
}

validator=$work/src/utils/ncvalidator/ncvalidator
# judge RANKS FOLDER PROGRAM [ARGUMENT...]: by default with its file, run-RANKS/PROGRAM.nc.
judge() {
    local ranks=$1 folder=$2 program=$3 run=$work/run-$1 status start=$EPOCHREALTIME took_ms
    local output=$run/$program.nc log=$run/$program.log file arguments
    case $program in
        get_vara) output=$run/put_vara.nc ;;
        pres_temp_4D_rd) output=$run/pres_temp_4D_wr.nc ;;
    esac
    [ "$folder" = examples/C ] && arguments=(-q "$output") || arguments=("$output")
    [ $# -le 3 ] || arguments=("${@:4}")
    (cd "$work/$folder" && launch "$ranks" "./$program" "${arguments[@]}") > "$log" 2>&1
    status=$?
    took_ms=$(((${EPOCHREALTIME/./} - ${start/./}) / 1000))
    for file in "$output"*; do
        [ ! -e "$file" ] || "$validator" -q "$file" >> "$log" 2>&1 || status="$status, ${file##*/} is invalid"
    done
    local good=no
    if [ "$status" = 0 ]; then
        if [ "$folder" = examples/C ]; then [ -s "$log" ] || good=yes; else grep -q pass "$log" && good=yes; fi
    fi
    verdict "pnetcdf [$ranks] $folder/$program${4:+ ${*:4}}" "status $status, $took_ms ms" [ $good = yes ]
    [ $good = yes ] || tail -12 "$log" | cut -c1-200 | sed 's/^/      | /'
}

# What its `make check` runs alone, and what its `make ptests` in parallel.
alone=(test/{C,nc_test,cdf_format,testcases,nonblocking})
parallel=(test/{C,header,testcases,nonblocking} examples/C)
for ranks in ${RANKS:-1 2 4 6}; do
    rm -rf "$work/run-$ranks"
    mkdir "$work/run-$ranks"
    [ "$ranks" -eq 1 ] && folders=("${alone[@]}") || folders=("${parallel[@]}")
    for folder in "${folders[@]}"; do
        for program in $(programs "$folder"); do
            # It skips itself, as a variable may have 2^31 - 1 dimensions.
            [[ $folder/$program =~ ${1:-} && $program != tst_max_var_dims ]] || continue
            case $program in
                nc_test) for format in "" -2 -5; do judge "$ranks" "$folder" $program $format -d "../../run-$ranks"; done ;;
                test_inq_format | tst_corrupt) judge "$ranks" "$folder" $program . ;;
                tst_open_cdf5) judge "$ranks" "$folder" $program bad_begin.nc5 ;;
                *) judge "$ranks" "$folder" "$program" ;;
            esac
        done
    done
    rm -rf "$work/run-$ranks"/*.nc*
done
finish
