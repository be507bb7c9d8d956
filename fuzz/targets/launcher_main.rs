#![no_main]

mod launcher;

libfuzzer_sys::fuzz_target!(|data: &[u8]| launcher::run(data));
