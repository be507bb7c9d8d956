#![no_main]

mod datagram;

libfuzzer_sys::fuzz_target!(|data: &[u8]| datagram::run(data));
