#!/bin/bash
# skip: other people's programs need the network once and half an hour; run them with make test-programs
# Other people's programs, fetched, built with this library's mpicc, run under its mpiexec, and judged by their own numbers.
#
#   run.sh [NAME...]     folders of this one, by default: hypre fftw hpcc petsc mpich
#
# WHIMBREL_PREFIX names an installed library other than build/. Sources and builds stay in .cache/programs: a second run needs no
# network. JOBS=N processes build (2).
set -uo pipefail
here=$(cd "$(dirname "$0")" && pwd)
names=("$@")
[ ${#names[@]} -gt 0 ] || names=(hypre fftw hpcc petsc mpich)

failed=()
for name in "${names[@]}"; do
    if [ ! -x "$here/$name/run.sh" ]; then
        echo "there is no recipe $name"
        failed+=("$name: no recipe")
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
