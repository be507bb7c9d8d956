#![no_main]

mod managers;

libfuzzer_sys::fuzz_target!(|data: &[u8]| managers::run(data));
