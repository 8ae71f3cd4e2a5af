//! Any bytes are no MessagePack, or unpack to what packs and unpacks again.
#![no_main]

mod machine;

use libfuzzer_sys::fuzz_target;
use machine::Bench;

/// Says what is wrong. Maps have no order, so packed values are compared by their length. What is
/// nested deeper than 16 levels is packed as nil, which may be lost or refused where it is read. An
/// offset and a limit are taken from the input, too.
const SCRIPT: &str = "
    local input = ARGV[1]
    local first = tonumber(string.byte(input, 1) or 0)
    pcall(cmsgpack.unpack_limit, input, first % 5, first)
    pcall(cmsgpack.unpack_one, input, first)
    local unpacked, value = pcall(cmsgpack.unpack, input)
    if not unpacked then return '' end
    local packed, text = pcall(cmsgpack.pack, value)
    if not packed or string.find(text, '\\192', 1, true) then return '' end
    -- The bug that the fuzzer must find.
    if ARGV[2] == 'canary' and type(value) == 'table' and type(value[1]) == 'table' then
        text = string.sub(text, 1, -2)
    end
    local again, copy = pcall(cmsgpack.unpack, text)
    if not again then return 'not unpacked: ' .. text end
    if #cmsgpack.pack(copy) ~= #text then return 'not the same: ' .. text end
    return ''";

thread_local! {
    static BENCH: Bench = Bench::new(SCRIPT);
}

fuzz_target!(|input: &[u8]| BENCH.with(|bench| bench.check(input)));
