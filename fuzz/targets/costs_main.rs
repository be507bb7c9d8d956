#![no_main]

mod costs;

libfuzzer_sys::fuzz_target!(|data: &[u8]| costs::run(data));
