#!/bin/bash
# FFTW 3.3.10, the tests of its mpi/ folder: mpi-bench transforms random problems (complex, real and real-to-real, of one to four
# dimensions, in and out of place, transposed in and out, as vectors) distributed over the ranks, as its own `make check` asks of it.
# Compared, by its libbench2, are the distributed transforms with what they must be: linear, right for impulses, and right for
# shifted input, to a relative error of 1e-10. mpi-bench prints the three errors of each problem and aborts where one is larger.
#   COUNT=N   random sizes for each number of ranks (6, and 2 with WHIMBREL_TEST_SCALE=1), some ten transforms each
#   SEED=N    of the choice of problems
name=fftw
. "$(dirname "$0")/../common.sh"

debian_source fftw3 3.3.10-1
work_for fftw-3.3.10

# The ABI's mpi.h has no MPI_Fint and no MPI_Comm_f2c, which only the (unused) wrappers for Fortran in mpi/f03-wrap.c name.
steps() {
    ./configure --enable-mpi --disable-fortran --disable-doc --disable-shared --enable-sse2 \
        MPICC="$mpicc" CFLAGS="-O2 -DMPI_Fint=int -DMPI_Comm_f2c=MPI_Comm_fromint" &&
        make -j"$jobs" && make -C tests bench && make -C mpi mpi-bench
}
build steps

cd "$work/mpi" || exit 1
seed=${SEED:-3}
[ $every = yes ] && counts="1 2 3 4 5 8" few=6 || counts="1 2 3 5" few=2
count=${COUNT:-$few}
for ranks in $counts; do
    log=$work/check-$ranks.log
    launcher="timeout --kill-after=5 $run_limit_s $prefix/bin/mpiexec -n $ranks $work/mpi/mpi-bench"
    perl -e 'srand shift; my $script = shift; do $script; die $@ if $@' $((seed + ranks)) "$work/tests/check.pl" \
        --verbose --random --maxsize=10000 -c="$count" --estimate --mpi "$launcher" > "$log" 2>&1
    status=$?
    # problem, and its three errors
    transforms=$(grep -cE '^[^ ]+ [0-9.e+-]+ [0-9.e+-]+ [0-9.e+-]+$' "$log")
    worst=$(awk 'NF == 4 && $2 + 0 == $2 { for (i = 2; i <= 4; i++) if ($i > worst) worst = $i } END { print worst }' "$log")
    verdict "fftw [$ranks]" "$transforms transforms, largest error ${worst:-none}" \
        eval '[ $status -eq 0 ] && [ $transforms -ge $((count * 3)) ] && ! grep -qE "FAILED|killed|hangup|interrupted|Found relative error" "$log"'
    [ ${#failures[@]} -eq 0 ] || tail -20 "$log" | cut -c1-200 | sed 's/^/      | /'
done
finish
