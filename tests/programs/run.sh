#!/bin/bash
# timeout: 5400
# variants: armci fftw hdf5 hpcc hypre mpich p4est petsc pnetcdf
# Other people's programs, fetched, built with this library's mpicc, run under its mpiexec, and judged by their own numbers.
#
#   run.sh [NAME...]     folders of this one, by default: hypre fftw hpcc petsc mpich hdf5 p4est pnetcdf armci
#
# WHIMBREL_TEST_SCALE: 1 fewer runs of each, and what takes too long to build not at all; 2 (the default) all.
# WHIMBREL_PREFIX names an installed library other than build/. Sources and builds stay in .cache/programs: a second run needs no
# network. JOBS=N processes build (2).
set -uo pipefail
here=$(cd "$(dirname "$0")" && pwd)
names=("$@")
[ ${#names[@]} -gt 0 ] || names=(hypre fftw hpcc petsc mpich hdf5 p4est pnetcdf armci)

export WHIMBREL_TEST_SCALE=${WHIMBREL_TEST_SCALE:-2}
long=
[ "${WHIMBREL_TEST_SCALE%%.*}" -ge 2 ] || long="hypre petsc hdf5 p4est pnetcdf armci"

failed=()
for name in "${names[@]}"; do
    if [ ! -x "$here/$name/run.sh" ]; then
        echo "there is no recipe $name"
        failed+=("$name: no recipe")
        continue
    fi
    if [[ " $long " == *" $name "* ]]; then
        [ ${#names[@]} -gt 1 ] || { echo "make test-nightly runs it: it takes minutes to build"; exit 77; }
        echo "skip  $name: make test-nightly runs it: it takes minutes to build"
        continue
    fi
    echo "== $name"
    "$here/$name/run.sh"
    status=$?
    case $status in
        0) ;;
        77) failed+=("$name: its source could not be fetched") ;;
        *) failed+=("$name: status $status") ;;
    esac
done

if [ ${#failed[@]} -gt 0 ]; then
    printf '%d of %d programs failed:\n' ${#failed[@]} ${#names[@]}
    printf '  %s\n' "${failed[@]}"
    exit 1
fi
echo "${#names[@]} programs passed: ${names[*]}"
