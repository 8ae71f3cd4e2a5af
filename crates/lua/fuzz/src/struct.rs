//! Any format and any bytes are refused, or what was unpacked packs to what unpacks to the same.
#![no_main]

mod machine;

use libfuzzer_sys::fuzz_target;
use machine::Bench;

/// The format ends at the first zero byte, or is all of the input. Says what is wrong.
const SCRIPT: &str = "
    local format, data = string.match(ARGV[1], '^([^%z]*)%z?(.*)$')
    pcall(struct.size, format)
    pcall(struct.pack, format, 1, 'text', -1, 2.5, data)
    pcall(struct.unpack, format, data, #data)
    local values = {pcall(struct.unpack, format, data)}
    if not values[1] then return '' end
    local count = #values - 2
    local packed, bytes = pcall(struct.pack, format, unpack(values, 2, count + 1))
    if not packed then return '' end
    local again = {pcall(struct.unpack, format, bytes)}
    -- The bug that the fuzzer must find.
    if ARGV[2] == 'canary' and count > 1 then again[2] = 'canary' end
    if not again[1] then return 'not unpacked: ' .. format end
    for index = 2, count + 1 do
        local one, other = values[index], again[index]
        local is_nan = one ~= one and other ~= other
        -- Rounded, the largest integer of 7 or 8 bytes is one too large for them.
        local is_large = type(one) == 'number' and math.abs(one) >= 2 ^ 53
        if one ~= other and not is_nan and not is_large then
            return 'not the same: ' .. format
        end
    end
    return ''";

thread_local! {
    static BENCH: Bench = Bench::new(SCRIPT);
}

fuzz_target!(|input: &[u8]| BENCH.with(|bench| bench.check(input)));
