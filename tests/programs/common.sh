# What the recipes share. A recipe sets `name`, sources this, and finds:
#   prefix     the installed library, WHIMBREL_PREFIX or build/
#   mpicc      its compiler, by a path that stays the same for all prefixes: what is built with one serves another
#   sources    where source archives are kept, .cache/programs/sources
#   work       where it builds and runs: one folder per program, version and pair of mpi.h and mpicc (see `work_for`)
# Status 77: a source could not be fetched.
set -uo pipefail

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
prefix=$(cd "${WHIMBREL_PREFIX:-$root/build}" 2>/dev/null && pwd) && [ -x "$prefix/bin/mpicc" ] ||
    { echo "there is no mpicc in ${WHIMBREL_PREFIX:-$root/build}/bin; run make first"; exit 1; }
cache=$root/.cache/programs
sources=$cache/sources
jobs=${JOBS:-2}
run_limit_s=${RUN_LIMIT_S:-300}
# Whether all runs are wanted, or few of each kind.
scale=${WHIMBREL_TEST_SCALE:-2}
[ "${scale%%.*}" -ge 2 ] && every=yes || every=no
mkdir -p "$sources"
ln -sfn "$prefix" "$cache/prefix"
mpicc=$cache/prefix/bin/mpicc
mpicxx=$cache/prefix/bin/mpicxx
# The programs' own launch commands find this library's mpiexec, and the library whatever prefix they were linked in.
export PATH=$prefix/bin:$PATH
export LD_LIBRARY_PATH=$prefix/lib${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}

# unavailable REASON
unavailable() {
    echo "$1"
    exit 77
}

# debian_apt KIND SUITE COMMAND...: apt-get for the sources (KIND is deb-src) or packages (deb) of a Debian. It checks signatures; lists
# and settings are this folder's own, so that neither root nor deb-src lines are needed. Its output is in $cache/apt/KIND-SUITE/log.
debian_apt() {
    local state=$cache/apt/$1-$2
    local apt=(apt-get -qq -o APT::Sandbox::User= -o "Dir::Etc::sourcelist=$state/sources.list" -o Dir::Etc::sourceparts=-
               -o "Dir::State::Lists=$state/lists" -o "Dir::Cache=$state")
    command -v apt-get >/dev/null || unavailable "there is no apt-get: $*"
    mkdir -p "$state/lists/partial"
    echo "$1 [signed-by=/usr/share/keyrings/debian-archive-keyring.gpg] http://deb.debian.org/debian $2 main" > "$state/sources.list"
    { "${apt[@]}" update && (cd "$sources" && "${apt[@]}" "${@:3}"); } > "$state/log" 2>&1 || { tail -5 "$state/log"; return 1; }
}

# debian_source PACKAGE VERSION [SUITE]: the upstream archive of a source package of Debian 12, or of another by its code name,
# unmodified, as $sources/PACKAGE_*.orig.tar.*.
debian_source() {
    local upstream=${2%-*}
    archive=$(compgen -G "$sources/$1_$upstream.orig.tar.*" | head -n 1)
    [ -z "$archive" ] || return 0
    echo "fetching Debian's source package $1 $2"
    debian_apt deb-src "${3:-bookworm}" source --download-only --tar-only "$1=$2" || unavailable "$1 $2 cannot be fetched"
    archive=$(compgen -G "$sources/$1_$upstream.orig.tar.*" | head -n 1)
    [ -n "$archive" ] || unavailable "$1 $2 cannot be fetched"
}

# autotools: what sources without a configure script make theirs with. Where libtool is not installed, Debian's is unpacked into the
# cache (it is scripts and macros); autoconf, automake and m4 must be there.
autotools() {
    local tool
    for tool in autoconf automake m4; do
        command -v $tool >/dev/null || unavailable "there is no $tool to make a configure script with"
    done
    ! command -v libtoolize >/dev/null || return 0
    local unpacked=$cache/libtool/usr
    if [ ! -x "$unpacked/bin/libtoolize" ]; then
        echo "fetching Debian's package libtool"
        debian_apt deb bookworm download libtool && dpkg -x "$sources"/libtool_*.deb "$cache/libtool" || unavailable "libtool cannot be fetched"
        ln -sf "$(automake --print-libdir)"/config.{guess,sub} "$unpacked/share/libtool/build-aux"
        sed -i -E "s|^( *[a-z]+=\")/usr|\1$unpacked|" "$unpacked/bin/libtoolize"
    fi
    export PATH=$unpacked/bin:$PATH ACLOCAL_PATH=$unpacked/share/aclocal${ACLOCAL_PATH:+:$ACLOCAL_PATH}
}

# pypi_source PACKAGE VERSION: its source distribution, as $archive.
pypi_source() {
    archive=$sources/$1-$2.tar.gz
    [ ! -e "$archive" ] || return 0
    echo "fetching $1 $2 from PyPI"
    [ -x "$cache/venv/bin/pip" ] || python3 -m venv "$cache/venv"
    "$cache/venv/bin/python" -m pip download --quiet --disable-pip-version-check --no-deps --no-binary "$1" --dest "$sources" "$1==$2" \
        > "$cache/pip.log" 2>&1 || { tail -5 "$cache/pip.log"; unavailable "$1 $2 cannot be fetched"; }
}

# work_for NAME-VERSION: unpacks $archive there when it is not there yet. A build depends on mpi.h and mpicc, not on the library.
work_for() {
    work=$cache/$1-$(cat "$prefix/include/mpi.h" "$prefix/bin/mpicc" | sha256sum | cut -c1-12)
    [ ! -e "$work/unpacked" ] || return 0
    rm -rf "$work"
    mkdir -p "$work"
    tar -C "$work" --strip-components=1 -xf "$archive" || { echo "$archive cannot be unpacked"; exit 1; }
    touch "$work/unpacked"
}

# build COMMAND...: runs it (or a function) in $work, once; its output is in $work/build.log. With BUILD_ONLY=yes that is all, and the last
# line says where.
build() {
    [ -e "$work/built" ] || build_now "$@"
    [ "${BUILD_ONLY:-no}" != yes ] || { echo "$work"; exit 0; }
}

build_now() {
    echo "building $name"
    if ! (renice -n 15 -p $BASHPID && cd "$work" && "$@") > "$work/build.log" 2>&1; then
        tail -40 "$work/build.log"
        echo "$name does not build"
        exit 1
    fi
    touch "$work/built"
}

# launch RANKS COMMAND...: under this library's mpiexec, with a limit on the time.
launch() {
    local ranks=$1
    shift
    timeout --kill-after=5 "$run_limit_s" "$prefix/bin/mpiexec" -n "$ranks" "$@" < /dev/null
}

passed=0
failures=()
# verdict NAME DETAIL CONDITION...: CONDITION is a command, such as [ "$a" = "$b" ].
verdict() {
    local what=$1 detail=$2
    shift 2
    if "$@"; then
        printf 'ok    %-40s %s\n' "$what" "$detail"
        passed=$((passed + 1))
    else
        printf 'FAIL  %-40s %s\n' "$what" "$detail"
        failures+=("$what")
    fi
}

# finish: the last line of a recipe.
finish() {
    if [ ${#failures[@]} -gt 0 ]; then
        printf '%s: %d passed, %d failed:\n' "$name" $passed ${#failures[@]}
        printf '  %s\n' "${failures[@]}"
        exit 1
    fi
    [ $passed -gt 0 ] || { echo "$name: nothing was run"; exit 1; }
    echo "$name: $passed passed"
    exit 0
}
