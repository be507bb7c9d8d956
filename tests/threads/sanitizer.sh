#!/bin/bash
# timeout: 1500
# long: it builds the library and Rust's standard library anew
# The threaded programs under ThreadSanitizer: the library is built with it, standard library included, and so are the programs.
# A program that breaks its promise of a single thread must be found out; else the sanitizer does not look.
# Status 77: there is no nightly compiler with its sources, or no libtsan of gcc.
set -uo pipefail
prefix=${WHIMBREL_TEST_PREFIX:-$(cd "$(dirname "$0")/../.." && pwd)/build}
root=${ROOT:-$(cd "$(dirname "$0")/../.." && pwd)}
scratch=${SCRATCH:-$(mktemp -d)}
target=$(rustc -vV | sed -n 's/^host: //p')
cache=$root/.cache/sanitizer

skip() { echo "$1"; exit 77; }
sources=$(rustc +nightly --print sysroot 2>/dev/null)/lib/rustlib/src/rust/library/std
[ -d "$sources" ] || skip "no nightly compiler with rust-src"
[ -e "$(gcc -print-file-name=libtsan.so)" ] || skip "gcc has no libtsan"

# What clang's code asks for by other names than gcc's library has.
mkdir -p "$cache"
cat > "$cache/names.c" <<'C'
#include <string.h>
void *__tsan_memcpy(void *to, const void *from, size_t bytes) { return memcpy(to, from, bytes); }
void *__tsan_memmove(void *to, const void *from, size_t bytes) { return memmove(to, from, bytes); }
void *__tsan_memset(void *to, int value, size_t bytes) { return memset(to, value, bytes); }
C
[ -e "$cache/names.o" ] || gcc -O1 -fno-builtin -fPIC -c "$cache/names.c" -o "$cache/names.o" || exit 1

cd "$root" || exit 1
RUSTFLAGS="-Zsanitizer=thread -Clink-arg=-ltsan -Clink-arg=$cache/names.o" CARGO_TARGET_DIR=$cache/target \
    cargo +nightly build --quiet -Zbuild-std=std,panic_abort --target "$target" --release --package whimbrel-abi \
    --config 'profile.release.lto="off"' --config profile.release.codegen-units=16 > "$scratch/build.log" 2>&1 ||
    { tail -40 "$scratch/build.log"; exit 1; }

# A prefix of its own, whose library is the sanitized one.
rm -rf "$scratch/prefix"
cp -a "$prefix" "$scratch/prefix"
cp "$cache/target/$target/release/libabi.so" "$scratch/prefix/lib/libmpi_abi.so.1"
export TSAN_OPTIONS="report_thread_leaks=0 exitcode=66"

build() { "$scratch/prefix/bin/mpicc" -cc=gcc -g -O1 -fsanitize=thread -pthread -I "$root/tests/programs-c" "$1" -o "$2"; }

failed=0
run() { # name, program, ranks, what to expect
    timeout 240 "$scratch/prefix/bin/mpiexec" -n "$3" "$2" > "$scratch/$1.log" 2>&1
    local status=$? found
    found=$(grep -c 'WARNING: ThreadSanitizer' "$scratch/$1.log")
    case $4 in
        clean) [ $status -eq 0 ] && [ "$found" -eq 0 ] ;;
        race) [ "$found" -gt 0 ] ;;
    esac || { echo "FAIL $1 [$3]: status $status, $found reports, expected $4"; head -60 "$scratch/$1.log"; failed=1; return; }
    echo "ok   $1 [$3]: $4"
}

for program in "$root"/tests/programs-c/thread_*.c "$root"/tests/programs-c/partitioned_threads.c; do
    name=$(basename "$program" .c)
    build "$program" "$scratch/$name" || exit 1
    run "$name" "$scratch/$name" 2 clean
done
sed 's/MPI_THREAD_MULTIPLE/MPI_THREAD_SINGLE/' "$root/tests/programs-c/thread_pairs.c" > "$scratch/broken_promise.c"
build "$scratch/broken_promise.c" "$scratch/broken_promise" || exit 1
TSAN_OPTIONS="$TSAN_OPTIONS halt_on_error=1" run broken_promise "$scratch/broken_promise" 2 race
exit $failed
