#![no_main]

mod dynamic;

libfuzzer_sys::fuzz_target!(|data: &[u8]| dynamic::run(data));
