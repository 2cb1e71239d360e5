#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| sessionlog_fuzz::targets::catalog::run(input));
