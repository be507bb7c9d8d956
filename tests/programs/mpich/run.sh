#!/bin/bash
# The test suite of MPICH 4.0.2 (test/mpi): the C tests of what this library has built, with the ranks, arguments and verdicts of
# the suite's own lists, through shared memory and then over UDP. A test passes when it ends with status 0 and says "No Errors"
# and nothing else, or, where its list wants so, when it ends with another status, but not by a signal or a panic. What the suite's folders have and is not run
# stands in `left_out`, each with its reason; an entry there that fits nothing is a failure.
#
#   FOLDERS="comm topo"   these alone           FABRICS=udp   that one alone (shm udp)           ALL=1   left_out's, too, with ten minutes for each
# With WHIMBREL_TEST_SCALE=1 every fifth entry.
name=mpich
. "$(dirname "$0")/../common.sh"
table=$root/tests/programs/mpich/left_out

debian_source mpich 4.0.2-3

folders=(attr coll comm datatype errhan group info init mpi_t part pt2pt rma spawn topo threads/{coll,comm,init,mpi_t,part,pt2pt,rma,spawn}
         errors/{attr,coll,comm,datatype,group,pt2pt,rma,spawn,topo} impls/mpich/comm)
over_udp=(coll comm datatype errhan part pt2pt rma spawn topo threads/{coll,comm,part,pt2pt,rma,spawn} errors/{coll,pt2pt,rma})

# What MPI-4.1 took over from MPICH has its name there,
# and integers for handles are the standard ABI's.
renamed=(MPIX_Delete_error_class=MPI_Remove_error_class MPIX_Delete_error_code=MPI_Remove_error_code
         MPIX_Delete_error_string=MPI_Remove_error_string
         MPI_Fint=int {,P}MPI_Message_c2f=MPI_Message_toint {,P}MPI_Message_f2c=MPI_Message_fromint)

mend() {
    # Handles that are taken for integers, as MPICH's own are.
    sed -i -E 's/int \*(send|recv)types/MPI_Datatype *\1types/' coll/nonblocking[23].c
    sed -i -E 's/switch \(dt\.mpi_type\)//; s/case (MPI_[A-Z_]+):/if (dt.mpi_type == \1)/; s/^( *)default:/\1/' datatype/pack_external.c
    # A message beside a null request, which are one in MPICH's own header.
    sed -i 's/\*message != MPI_REQUEST_NULL/*message != MPI_MESSAGE_NULL/' threads/pt2pt/mt_probe_impl.c
    # A datatype that was freed, whose handle there is that of the next one made.
    sed -i 's/^    err = MPI_Type_create_struct(2, len, adisp, types, &struct_type);/    types[0] = type;\n&/' datatype/indexed_misc.c
    # Messages of MPI_DATATYPE_NULL, which is no datatype to send (MPI-5.0 §3.2.2).
    sed -i 's/NULL, 0, MPI_DATATYPE_NULL/NULL, 0, MPI_INT/' part/nonblocking_pready.c
    # Every operation on MPI_AINT, MPI_OFFSET and MPI_COUNT, where MPI has no logical ones (MPI-5.0 §6.9.2).
    sed -i -E '/op##_test##post\(MPI_(Aint|Offset|Count), /d' coll/allred.c
    # Errors on a window, whose handler is MPI_ERRORS_ARE_FATAL until it is set (MPI-5.0 §12.6.1).
    sed -i 's/^    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);/&\n    MPI_Win_set_errhandler(win, MPI_ERRORS_RETURN);/' errors/attr/keyvalmis.c
    # MPI_ERROR of statuses, which a call that succeeds leaves as it was (MPI-5.0 §3.2.5): here what lay on the stack.
    sed -i 's/MPI_Status stats\[3\];/MPI_Status stats[3] = { 0 };/' part/multipart.c
}
steps() {
    cd test/mpi && mend || return 1
    CPPFLAGS="${renamed[*]/#/-D}" ./configure --with-mpi="$cache/prefix" --enable-fortran=none --disable-cxx --disable-romio \
        --disable-perftest --enable-threads=multiple --enable-strictmpi && make -j"$jobs" -C dtpools && make -j"$jobs" -C util
}
work_for "mpich-4.0.2-$( (declare -f mend steps; declare -p folders renamed) | sha256sum | cut -c1-8)"
suite=$work/test/mpi

build steps

# entries FOLDER: the lines of its lists, without what only MPICH reads of them, each once.
entries() {
    cat "$suite/$1"/testlist{,.dtp,.cvar} 2>/dev/null |
        sed -E -e 's/#.*//' -e 's/\<(env=(MPIR_CVAR|MPIEXEC_)|xfail=|strict=|mpiversion=|mem=|mpiexecarg=)[^ ]*//g' -e 's/^ +//; s/ +$//; s/ +/ /g' |
        awk 'NF && !seen[$0]++'
}

declare -A reasons=() met=()
while IFS= read -r line; do
    case $line in '#'* | '') ;; *) reasons[${line%%: *}]=${line#*: } ;; esac
done < "$table"

# left_out FABRIC FOLDER ENTRY: whether a pattern of the table fits "[udp ]folder/program ranks ...".
left_out() {
    local pattern
    for pattern in "${!reasons[@]}"; do
        # shellcheck disable=SC2053
        if [[ "$2/$3 " == $pattern\ * || "$1 $2/$3 " == $pattern\ * ]]; then
            met[$pattern]=1
            return 0
        fi
    done
    return 1
}

# judge FABRIC FOLDER PROGRAM RANKS [KEY=VALUE...]
judge() {
    local fabric=$1 folder=$2 program=$3 ranks=${4:-2} must_fail=no options=() arguments=() word
    run_limit_s=$limit_s
    for word in "${@:5}"; do
        case $word in
            arg=*) arguments+=("${word#arg=}") ;;
            timeLimit=*) run_limit_s=${word#*=} ;;
            resultTest=*) must_fail=yes ;;
            *) echo "$folder/testlist: what is $word?" ;;
        esac
    done
    # Since MPI-4.0 errors that belong to no communicator are raised on MPI_COMM_SELF (MPI-5.0 §9.3); the suite sets the handler of MPI_COMM_WORLD.
    [[ "$folder" != errors/* && $program != attrerrtype && $program != namepub ]] || options=(-initial-errhandler mpi_errors_return)
    # Processes of several jobs reach each other by datagrams alone; the suite spawns where MPI_UNIVERSE_SIZE leaves room for it.
    local reach=$fabric
    if [[ $folder == *spawn ]]; then
        options+=(--usize 64)
        [ "$fabric" != shm ] || reach=auto
    fi
    local start=$EPOCHREALTIME status good=no
    (cd "$suite/$folder" && WHIMBREL_FABRIC=$reach launch "$ranks" "${options[@]}" "./$program" "${arguments[@]}") > "$out" 2>&1
    status=$?
    local took_ms=$(((${EPOCHREALTIME/./} - ${start/./}) / 1000))
    if [ $must_fail = yes ]; then
        # 124: too long. Above 128: by a signal, with which no error of the standard ends a program.
        [ $status -eq 0 ] || [ $status -eq 124 ] || [ $status -gt 128 ] || ! python3 "$root/tests/harness/crash.py" < "$out" > /dev/null || good=yes
    elif [ $status -eq 0 ]; then
        [ "$(sed -E 's/^\s+|\s+$//g; /^Test Passed$/d; s/^No errors$/No Errors/' "$out")" != "No Errors" ] || good=yes
    fi
    verdict "$fabric $folder/$program [$ranks]${arguments[*]:+ ${arguments[*]}}" "status $status, $took_ms ms" [ $good = yes ]
    [ $good = yes ] || head -12 "$out" | cut -c1-300 | sed 's/^/      | /'
}

out=$(mktemp)
trap 'rm -f "$out"' EXIT
[ -n "${ALL:-}" ] && limit_s=600 || limit_s=120
skipped=0
entry_number=0
[ $every = yes ] && step=1 || step=5
for fabric in ${FABRICS:-shm udp}; do
    [ "$fabric" = shm ] && chosen=("${folders[@]}") || chosen=("${over_udp[@]}")
    for folder in ${FOLDERS:-"${chosen[@]}"}; do
        selected=()
        while read -r entry; do
            if left_out "$fabric" "$folder" "$entry" && [ -z "${ALL:-}" ]; then
                skipped=$((skipped + 1))
            elif [ $((entry_number++ % step)) -eq 0 ]; then
                selected+=("$entry")
            fi
        done < <(entries "$folder")
        [ ${#selected[@]} -gt 0 ] || continue
        # What cannot be built fails when it is run.
        (renice -n 15 -p $BASHPID; make -k -j"$jobs" -C "$suite/$folder" $(printf '%s\n' "${selected[@]%% *}" | sort -u)) >> "$work/build.log" 2>&1
        for entry in "${selected[@]}"; do
            read -r -a words <<< "$entry"
            judge "$fabric" "$folder" "${words[@]}"
        done
    done
done
if [ -z "${FOLDERS:-}${FABRICS:-}" ]; then
    for pattern in "${!reasons[@]}"; do verdict "left_out: $pattern" "fits a test" [ -n "${met[$pattern]:-}" ]; done
fi
echo "left out: $skipped"
finish
