//! The fixed values that arguments are drawn from.

/// Values around which arithmetic and bounds go wrong.
pub const NUMBERS: [&str; 26] = [
    "0",
    "1",
    "-1",
    "2",
    "10",
    "-10",
    "9999",
    "10000",
    "127",
    "128",
    "255",
    "32767",
    "-32768",
    "2147483647",
    "-2147483648",
    "2147483648",
    "4294967295",
    "4294967296",
    "9223372036854775807",
    "-9223372036854775808",
    "9223372036854775806",
    "-9223372036854775807",
    "9223372036854775808",
    "18446744073709551615",
    "-9223372036854775809",
    "1000000000000",
];

/// Texts that look like numbers and are none, or are only sometimes.
pub const NO_NUMBERS: [&str; 16] = [
    "",
    "abc",
    "+1",
    "01",
    "-0",
    " 1",
    "1 ",
    "1.0",
    "0x10",
    "1e3",
    "inf",
    "-inf",
    "nan",
    "--1",
    "1_000",
    "99999999999999999999999999",
];

pub const FLOATS: [&str; 24] = [
    "0",
    "1",
    "-1",
    "0.1",
    "-0.1",
    "3.14",
    "1.5",
    "1e3",
    "1e-5",
    "5e-324",
    "1e308",
    "-1e308",
    "1e17",
    "1e16",
    "123456789.123456789",
    "0.30000000000000004",
    "1e400",
    "inf",
    "-inf",
    "nan",
    "9007199254740993",
    "1e-20",
    "3.0e0",
    ".5",
];

pub const PATTERNS: [&str; 14] = [
    "*", "k*", "*1*", "?1", "k[1-3]", "k[^1]", "*{t}*", "h?", "\\*", "[", "nothing", "", "*[0-9]",
    "f*",
];

pub const TYPES: [&str; 8] =
    ["string", "hash", "list", "set", "zset", "stream", "STRING", "nosuch"];

/// What stands for the value of a BY or GET of SORT.
pub const SORT_PATTERNS: [&str; 7] = ["nosort", "k*", "h*->f1", "#", "l*", "x*->", "*"];

/// Integers of BITFIELD, and what looks like one.
pub const BITFIELD_TYPES: [&str; 12] =
    ["u1", "i1", "u2", "i5", "u8", "i8", "u16", "i32", "u63", "i64", "u64", "i65"];

/// Bounds of scores; a number is put behind a parenthesis at times.
pub const SCORE_BOUNDS: [&str; 6] = ["-inf", "+inf", "inf", "(0", "(inf", "(-inf"];

/// Ends of ranges of stream ids, and ids of a special meaning.
pub const STREAM_BOUNDS: [&str; 10] = [
    "-",
    "+",
    "0",
    "$",
    ">",
    "0-0",
    "0-1",
    "18446744073709551615-18446744073709551615",
    "(-",
    "x-1",
];

/// Corners of the earth and just beyond.
pub const LONGITUDES: [&str; 6] = ["-180", "180", "0", "180.1", "13.361389", "-0.0000001"];
pub const LATITUDES: [&str; 6] =
    ["-85.05112878", "85.05112878", "0", "85.06", "38.115556", "-0.0000001"];
