#!/bin/bash
# HPC Challenge 1.5.0: HPL, PTRANS, RandomAccess, MPIFFT, DGEMM, STREAM, and latency and bandwidth of rings (b_eff), at 2, 3, 4
# and 6 ranks, small, on every combination of HPL's broadcasts, lookahead depths and both process mappings' row form.
# Compared are the program's own numbers:
#   HPL           ||Ax-b|| / (eps (||x|| ||A|| + ||b||) N) below 16 for each system solved, and how many were solved
#   PTRANS        residuals of A' + B against what they must be: all passed, none skipped
#   RandomAccess  over all ranks, entries of the distributed table that a second pass did not restore: none (the program would allow 1 %)
#   MPIFFT        max |x - inverse(transform(x))| / (log n eps) below 16; also within the Success below
#   b_eff         first and last byte of each message, changed on the way by 13 for each hop: no ERROR line
#   Success=1     all of these and DGEMM's, STREAM's and the local transforms' own checks
name=hpcc
. "$(dirname "$0")/../common.sh"

debian_source hpcc 1.5.0-3
work_for hpcc-1.5.0

# RandomAccess keeps four receives open above 4 ranks, and ends when MPI_Testany has given it the last message of each peer: it counts on being
# given complete requests in the order in which they completed, though which of them it is given is arbitrary (MPI-5.0 §3.7.5).
# Its HPL 2.0 calls two functions that MPI-3.0 removed, and that this library's mpi.h declares for old programs.
steps() {
    cat > hpl/Make.whimbrel <<EOF
SHELL = /bin/sh
CD = cd
CP = cp
LN_S = ln -s
MKDIR = mkdir -p
RM = rm -f
TOUCH = touch
ARCH = \$(arch)
TOPdir = ../../..
INCdir = \$(TOPdir)/include
BINdir = \$(TOPdir)/bin/\$(ARCH)
LIBdir = \$(TOPdir)/lib/\$(ARCH)
HPLlib = \$(LIBdir)/libhpl.a
LAlib = -lblas
HPL_INCLUDES = -I\$(INCdir) -I\$(INCdir)/\$(ARCH)
HPL_LIBS = \$(HPLlib) \$(LAlib) -lm
HPL_DEFS = -DAdd__ -DF77_INTEGER=int -DStringSunStyle \$(HPL_INCLUDES)
CC = $mpicc
CCNOOPT = \$(HPL_DEFS) -O0
CCFLAGS = \$(HPL_DEFS) -O2
LINKER = \$(CC)
LINKFLAGS = -O2
ARCHIVER = ar
ARFLAGS = r
RANLIB = ranlib
EOF
    make arch=whimbrel -j"$jobs" && [ -x hpcc ]
}
build steps

# input N ROWS COLUMNS: 6 broadcasts x 2 depths x 2 sizes of blocks are 24 systems.
systems=24
input() {
    sed -e "6s/^[0-9]*/$1/" -e '7s/^[0-9]*/2/' -e '8s/^[0-9]*/16 40/' -e "11s/^[0-9]*/$2/" -e "12s/^[0-9]*/$3/" \
        -e '22s/^[0-9]*/6/' -e '23s/^[0-9]*/0 1 2 3 4 5/' -e '24s/^[0-9]*/2/' -e '25s/^[0-9]*/0 1/' "$work/_hpccinf.txt"
}

# number REGEX: sums the numbers that the regular expression's first group finds in the report.
number() {
    sed -nE "s/$1/\1/p" hpccoutf.txt | awk '{ sum += $1; seen++ } END { print seen ? sum : "none" }'
}

run() {
    local ranks=$(($2 * $3)) log=output status
    rm -rf "$work/run-$ranks"
    mkdir "$work/run-$ranks"
    cd "$work/run-$ranks" || exit 1
    input "$1" "$2" "$3" > hpccinf.txt
    launch $ranks "$work/hpcc" > $log 2>&1
    status=$?
    touch hpccoutf.txt
    local hpl=$(grep -cE '^\|\|Ax-b\|\|.*PASSED' hpccoutf.txt)
    local wrong=$(number '^Found ([0-9]+) errors in [0-9]+ locations.*')
    local transposed=$(number '^ *([0-9]+) tests completed and passed residual checks.*')
    local failed=$(number '^ *([0-9]+) tests completed and failed residual checks.*')
    local skipped=$(number '^ *([0-9]+) tests skipped because of illegal input values.*')
    local fft=$(sed -nE 's/^MPIFFT_maxErr=//p' hpccoutf.txt)
    verdict "hpcc [$ranks] ends" "status $status" [ $status -eq 0 ]
    [ $status -eq 0 ] || tail -5 $log | sed 's/^/      | /'
    verdict "hpcc [$ranks] HPL" "$hpl of $systems residuals passed" [ "$hpl" -eq $systems ]
    # HPL and PTRANS word it alike; PTRANS takes each of 2 sizes of blocks 5 times, on process grids of its own choice.
    verdict "hpcc [$ranks] HPL and PTRANS" "$transposed passed, $failed failed, $skipped skipped" \
        [ "$transposed/$failed/$skipped" = "$((systems + 10))/0/0" ]
    verdict "hpcc [$ranks] RandomAccess" "$wrong wrong entries" [ "$wrong" = 0 ]
    verdict "hpcc [$ranks] MPIFFT" "largest error $fft" awk -v e="${fft:-1}" 'BEGIN { exit !(e > 0 && e < 1e-12) }'
    verdict "hpcc [$ranks] b_eff" "$(sed -nE 's/^(RandomlyOrderedRingLatency_usec=.*)/\1/p' hpccoutf.txt)" \
        eval "grep -q '^RandomlyOrderedRingLatency_usec=' hpccoutf.txt && ! grep -q ERROR hpccoutf.txt"
    verdict "hpcc [$ranks] verdict" "$(grep '^Success=' hpccoutf.txt)" grep -qx 'Success=1' hpccoutf.txt
}

run 200 1 2
if [ $every = yes ]; then
    run 200 1 3
    run 200 2 2
fi
run 200 2 3
finish
