#![no_main]

mod wire;

libfuzzer_sys::fuzz_target!(|data: &[u8]| wire::run(data));
