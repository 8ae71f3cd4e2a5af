//! Any text is no JSON, or decodes to what encodes and decodes again.
#![no_main]

mod machine;

use libfuzzer_sys::fuzz_target;
use machine::Bench;

/// Says what is wrong. Members have no order, so texts are compared by their length.
const SCRIPT: &str = "
    local decoded, value = pcall(cjson.decode, ARGV[1])
    if not decoded then return '' end
    local encoded, text = pcall(cjson.encode, value)
    if not encoded then return '' end
    -- The bug that the fuzzer must find.
    if ARGV[2] == 'canary' and string.find(text, '[[', 1, true) then text = text .. ']' end
    local again, copy = pcall(cjson.decode, text)
    if not again then return 'not decoded: ' .. text end
    if #cjson.encode(copy) ~= #text then return 'not the same: ' .. text end
    return ''";

thread_local! {
    static BENCH: Bench = Bench::new(SCRIPT);
}

fuzz_target!(|input: &[u8]| BENCH.with(|bench| bench.check(input)));
