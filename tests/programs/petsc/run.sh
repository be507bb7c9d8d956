#!/bin/bash
# PETSc 3.26.1 from PyPI, in C with Debian's reference BLAS and LAPACK: its `make check`, then tests of its own suite that run on
# several ranks, by its harness: star forests (the library's exchange patterns), vectors, index sets, scatters, orderings and logging,
# distributed grids, and Krylov and Newton solvers (ksp ex2, snes ex19).
# Compared is what each test prints with the reference output in its source: iteration counts and text exactly, by PETSc's petscdiff,
# and floating-point numbers, which that masks, by ./compare to a tolerance.
# Left out: star forests by one-sided communication (`-sf_type window`), files by MPI-IO (`mpiio`, vec ex5), what PETSc skips for want of
# Fortran, C++ or data files, and ex19_aspin, whose iteration counts differ from the reference with MPICH, too.
#
#   run.sh [REGEX]     labels of tests, such as 'ksp_ksp_tutorials-ex2_' or 'vec_is_sf'
name=petsc
. "$(dirname "$0")/../common.sh"
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)

pypi_source petsc 3.26.1
work_for petsc-3.26.1
export PETSC_DIR=$work PETSC_ARCH=arch-test
unset MAKEFLAGS MAKELEVEL

steps() {
    ./configure --with-cc="$mpicc" --with-cxx=0 --with-fc=0 --with-mpiexec="$cache/prefix/bin/mpiexec" \
        --with-blaslapack-lib="-llapack -lblas" --with-debugging=0 COPTFLAGS=-O1 --with-x=0 --with-ssl=0 --with-sowing=0 \
        --with-make-np="$jobs" &&
        make all &&
        make -s -f gmakefile.test "$PETSC_ARCH/tests/ksp/ksp/tutorials/ex2" "$PETSC_ARCH/tests/snes/tutorials/ex19"
}
build steps
cd "$work" || exit 1

# --- its check: ex19 at 1 and 2 ranks

make check > check.log 2>&1
checks=$(grep -c 'run successfully with [12] MPI process' check.log)
verdict "petsc make check" "$checks of 2 examples" eval '[ "$checks" -eq 2 ] && ! grep -qi "error" check.log'
[ ${#failures[@]} -eq 0 ] || sed 's/^/      | /' check.log

# --- its tests

# The harness of each test is a script run*.sh, with its label and numbers of ranks.
make -s -f gmakefile.test "$PETSC_ARCH/tests/testfiles" > tests.log 2>&1
labels=$(grep -rlE 'nsize:-(1 )?[2-9]' --include='run*.sh' "$PETSC_ARCH/tests" |
    xargs grep -LE "SKIP ([^C]|C\+)|sf_type window|mpiio" | xargs sed -nE "s/^label='(.*)'/\1/p" |
    grep -E "${1:-^(vec_|sys_tests|dm_tests-|ksp_ksp_tutorials-ex2_|snes_tutorials-ex19_)}" |
    grep -vxE "vec_vec_tutorials-ex5_2|snes_tutorials-ex19_aspin" | sort)
[ -n "$labels" ] || { echo "petsc has no test $1"; exit 1; }
rm -rf "$PETSC_ARCH/tests/counts"
# shellcheck disable=SC2086 # labels are words
PETSCDIFF=$here/compare PETSCMPIEXEC="timeout --kill-after=5 $run_limit_s $prefix/bin/mpiexec" \
    make -k -j"$jobs" -f gmakefile.test $(printf "$PETSC_ARCH/tests/counts/%s.counts " $labels) > tests.log 2>&1
for label in $labels; do
    counts=$PETSC_ARCH/tests/counts/$label.counts
    read -r good bad <<< "$(awk '$1 == "success" { good = $2 } $1 == "failed" { bad = $2 } END { print good + 0, bad + 0 }' "$counts" 2>&1)"
    # Its run and its comparison, each for each number of ranks.
    verdict "$label" "$good passed, $bad failed" [ "$good" -ge 2 -a "$bad" = 0 ]
done
[ ${#failures[@]} -eq 0 ] || grep -A25 '^not ok' tests.log | head -200 | sed 's/^/      | /'
finish
