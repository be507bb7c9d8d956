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
    cargo +nightly build -q --release -Zbuild-std --target "$target" --package whimbrel-vipl) || exit 1
VIPL_LIBRARY=$folder/$target/release/libvipl.so
. "$(dirname "$0")/common.inc"
build tests/vipl/conformance.c -fsanitize=thread
TSAN_OPTIONS="halt_on_error=1 second_deadlock_stack=1" "$SCRATCH/conformance"
