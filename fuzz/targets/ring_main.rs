#![no_main]

mod ring;

libfuzzer_sys::fuzz_target!(|data: &[u8]| ring::run(data));
