#!/bin/bash
# The rules once more with library and program under the thread sanitizer; wants a nightly toolchain with rust-src.
# timeout: 1800
# long: it builds the library and Rust's standard library anew
if ! rustc +nightly -vV > /dev/null 2>&1 || [ ! -d "$(rustc +nightly --print sysroot)/lib/rustlib/src/rust/library" ]; then
    echo "no nightly toolchain with rust-src: rustup toolchain install nightly --component rust-src"
    exit 77
fi
ROOT=${ROOT:-$(cd "$(dirname "$0")/../.." && pwd)}
target=$(rustc -vV | sed -n 's/host: //p')
folder=${VIPL_TSAN_TARGET:-$ROOT/target/tsan}
(cd "$ROOT" && RUSTFLAGS=-Zsanitizer=thread CARGO_TARGET_DIR="$folder" CARGO_PROFILE_RELEASE_LTO=off CARGO_PROFILE_RELEASE_CODEGEN_UNITS=16 \
    cargo +nightly build -q --release -Zbuild-std=std,panic_abort --target "$target" --package whimbrel-vipl) || exit 1
VIPL_LIBRARY=$folder/$target/release/libvipl.so
. "$(dirname "$0")/common.inc"
# What clang's code asks for by other names than gcc's library has.
cat > "$SCRATCH/names.c" <<'C'
#include <string.h>
void *__tsan_memcpy(void *to, const void *from, size_t bytes) { return memcpy(to, from, bytes); }
void *__tsan_memmove(void *to, const void *from, size_t bytes) { return memmove(to, from, bytes); }
void *__tsan_memset(void *to, int value, size_t bytes) { return memset(to, value, bytes); }
C
gcc -O1 -fno-builtin -fPIC -c "$SCRATCH/names.c" -o "$SCRATCH/names.o"
build tests/vipl/conformance.c -fsanitize=thread "$SCRATCH/names.o"
build tests/vipl/pair.c -fsanitize=thread "$SCRATCH/names.o"
# In one process the ring is mapped twice, and the sanitizer does not know that both are one memory: for what the event manager copies it misses the
# order that the ring makes. Two processes have one mapping each, and nothing is left out.
echo race:accept_rare > "$SCRATCH/suppressions"
export TSAN_OPTIONS="halt_on_error=1 second_deadlock_stack=1"
"$SCRATCH/pair" shm server & server=$!
"$SCRATCH/pair" shm client
wait $server
TSAN_OPTIONS="$TSAN_OPTIONS suppressions=$SCRATCH/suppressions" "$SCRATCH/conformance"
