#![no_main]

mod vipl;

libfuzzer_sys::fuzz_target!(|data: &[u8]| vipl::run(data));
