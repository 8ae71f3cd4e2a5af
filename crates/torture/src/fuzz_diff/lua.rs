//! Pieces of Lua that scripts are made of beside calls of the table: values, the libraries, errors.

use std::fmt::Write as _;

use kvasir_harness::link::Call;
use kvasir_harness::random::Random;
use sha1::{Digest, Sha1};

/// First lines, right and wrong.
pub const SHEBANGS: [&str; 7] = [
    "#!lua",
    "#!lua flags=no-writes",
    "#!lua flags=allow-oom,allow-stale",
    "#!lua flags=no-writes,allow-cross-slot-keys",
    "#!lua flags=nosuch",
    "#!lua name=x",
    "#!lua nosuch=1",
];

/// Nesting of tables.
const DEPTH_MAX: usize = 4;

/// Expressions as they stand. Each is evaluated by servers of the same Lua, so that even what the
/// language leaves open is the same.
const EXPRESSIONS: [&str; 75] = [
    "#KEYS",
    "KEYS[1]",
    "ARGV[2]",
    "{KEYS, ARGV}",
    "nil",
    "true",
    "false",
    "3.99",
    "-3.99",
    "2^53",
    "1e300 * 0",
    "{1, 2, nil, 4}",
    "{1, {2, {3, false, 'x'}}}",
    "{err = 'MINE is wrong'}",
    "{err = 'mine'}",
    "{err = '-MINE with a dash'}",
    "{err = ''}",
    "{ok = 'fine'}",
    "{ok = 'fine', err = 'both'}",
    "{double = 3.5}",
    "{double = 1e100}",
    "{map = {a = 1}}",
    "{map = {a = {double = 0.5}}}",
    "{set = {a = true}}",
    "{big_number = '12345678901234567890'}",
    "{verbatim_string = {format = 'txt', string = 'text'}}",
    "redis.error_reply('mine')",
    "redis.error_reply('MINE is wrong')",
    "redis.error_reply('-MINE is wrong')",
    "redis.error_reply()",
    "redis.error_reply(1)",
    "redis.status_reply('fine')",
    "redis.status_reply(1, 2)",
    "redis.sha1hex('abc')",
    "redis.sha1hex('')",
    "redis.sha1hex()",
    "redis.setresp(2)",
    "redis.setresp(4)",
    "redis.log(redis.LOG_DEBUG, 'a line')",
    "redis.log('x')",
    "redis.acl_check_cmd('get', 'k')",
    "redis.acl_check_cmd('nosuch')",
    "redis.replicate_commands()",
    "redis.set_repl(redis.REPL_ALL)",
    "redis.call()",
    "redis.pcall()",
    "redis.call('nosuch')",
    "redis.pcall('nosuch')",
    "redis.pcall('get')",
    "redis.call('get')",
    "redis.pcall('get', {})",
    "redis.pcall({'get', 'k'})",
    "redis.pcall('set', 'k', 1.5)",
    "redis.pcall('set', 'k', 2^53)",
    "pcall(redis.call, 'nosuch')",
    "select(2, pcall(redis.call, 'get'))",
    "select(2, pcall(error, 'boom'))",
    "select(2, pcall(error, {err = 'boom'}))",
    "error('boom')",
    "error({err = 'MINE boom'})",
    "error()",
    "nosuch",
    "nosuch.field",
    "#5",
    "1 + {}",
    "rawset(_G, 'x', 1)",
    "setmetatable(redis, {})",
    "loadstring('return 1 + 1')()",
    "loadstring('1 +')",
    "string.rep('x', 300)",
    "string.format('%5.2f|%d|%s|%q|%x|%g', 3.14159, 42, 'text', 'q\"', 255, 1e20)",
    "tostring(1e15) .. tostring(1e16) .. tostring(0.1) .. tostring(-0)",
    "tonumber('0x10') + tonumber('1e2') + tonumber('10', 2)",
    "table.concat({1, 2, 'x'}, '-')",
    "string.gsub('hello world', 'o', '0')",
];

const JSON: [&str; 14] = [
    "{}",
    "[]",
    "[1,2.5,-3e2,true,false,null,\"x\"]",
    "{\"a\":{\"b\":[{}]}}",
    "\"\\u00e9\\ud83d\\ude00\\n\"",
    "[1,",
    "{\"a\"}",
    "nul",
    "1e999",
    "-0",
    "[[[[[[[[]]]]]]]]",
    " [ 1 , 2 ] ",
    "12345678901234567890",
    "[0x10]",
];

const FORMATS: [&str; 14] =
    ["b", "B", "h", "H", "i", "I", ">l", "<L", "i3", "f", "d", "<I4", "!8i", "T"];

const BIT_FUNCTIONS: [&str; 12] = [
    "band", "bor", "bxor", "lshift", "rshift", "arshift", "rol", "ror", "tobit", "bnot", "tohex",
    "bswap",
];

/// Calls that only a script makes sense of, or that it may not make.
const CALLS: [&str; 15] = [
    "PUBLISH c1 message",
    "SPUBLISH c2 message",
    "SUBSCRIBE c1",
    "MULTI",
    "EXEC",
    "WATCH k",
    "EVAL x 0",
    "CLIENT SETNAME x",
    "CLIENT GETNAME",
    "SELECT 1",
    "SELECT 0",
    "AUTH x",
    "HELLO 3",
    "SCRIPT FLUSH",
    "CONFIG GET nosuch",
];

/// A statement's value, in Lua.
pub fn expression(random: &mut Random) -> Vec<u8> {
    let value = |random: &mut Random| table(0, random);
    match random.below(16) {
        0 => [b"cjson.encode(".to_vec(), value(random), b")".to_vec()].concat(),
        1 => json(random),
        2 => [b"cmsgpack.pack(".to_vec(), value(random), b")".to_vec()].concat(),
        3 => {
            let (one, other) = (value(random), value(random));
            [&b"{cmsgpack.unpack(cmsgpack.pack("[..], &one, b", ", &other, b"))}"].concat()
        }
        4 => {
            let len = random.below(12);
            [b"{cmsgpack.unpack(".to_vec(), quote(&random.bytes(len)), b")}".to_vec()].concat()
        }
        5 => packed(random),
        6 => {
            let (format, len) = (*random.pick(&FORMATS), random.below(10));
            let text = quote(&random.bytes(len));
            [b"{struct.unpack('", format.as_bytes(), b"', ", &text, b")}"].concat()
        }
        7 | 8 => {
            let (name, one) = (*random.pick(&BIT_FUNCTIONS), number(random));
            format!("bit.{name}({one}, {})", random.range(-40, 40)).into_bytes()
        }
        9 | 10 => value(random),
        _ => random.pick(&EXPRESSIONS).as_bytes().to_vec(),
    }
}

fn json(random: &mut Random) -> Vec<u8> {
    let text = quote(random.pick(&JSON).as_bytes());
    match random.below(3) {
        0 => [b"cjson.decode(", &text[..], b")"].concat(),
        1 => [b"cjson.encode(cjson.decode(", &text[..], b"))"].concat(),
        _ => [b"select(2, pcall(cjson.decode, ", &text[..], b"))"].concat(),
    }
}

fn packed(random: &mut Random) -> Vec<u8> {
    let (mut formats, mut values) = (String::new(), String::new());
    for _ in 0..1 + random.below(4) {
        let format: &&str = random.pick(&FORMATS);
        formats.push_str(format);
        let _ = write!(values, ", {}", random.range(-300, 300));
    }
    format!("struct.pack('{formats}'{values})").into_bytes()
}

/// A table or a plain value.
fn table(depth: usize, random: &mut Random) -> Vec<u8> {
    let kind = random.below(if depth < DEPTH_MAX { 8 } else { 5 });
    match kind {
        0 => random.pick(&["true", "false", "nil", "cjson.null", "''"]).as_bytes().to_vec(),
        1 | 2 => number(random).into_bytes(),
        3 | 4 => {
            let len = random.below(12);
            quote(&random.bytes(len))
        }
        _ => {
            let mut text = b"{".to_vec();
            for _ in 0..random.below(4) {
                // One name at most: the order of several is nobody's promise.
                text.extend([table(depth + 1, random), b", ".to_vec()].concat());
            }
            if kind == 7 {
                let value = table(depth + 1, random);
                text.extend([&b"name = "[..], &value].concat());
            }
            text.push(b'}');
            text
        }
    }
}

fn number(random: &mut Random) -> String {
    const NUMBERS: [&str; 14] = [
        "0",
        "-1",
        "127",
        "128",
        "-129",
        "65535",
        "65536",
        "2147483647",
        "-2147483648",
        "4294967296",
        "9007199254740993",
        "0.5",
        "-1.25",
        "1e20",
    ];
    match random.below(2) {
        0 => random.pick(&NUMBERS).to_string(),
        _ => random.range(-1000, 1000).to_string(),
    }
}

/// A call beside those of the table.
pub fn other_call(random: &mut Random) -> Call {
    random.pick(&CALLS).split(' ').map(|word| word.into()).collect()
}

/// A string of Lua.
pub fn quote(bytes: &[u8]) -> Vec<u8> {
    let mut text = String::from("'");
    for byte in bytes {
        match byte {
            b' '..=b'~' if !b"'\\".contains(byte) => text.push(char::from(*byte)),
            _ => {
                let _ = write!(text, "\\{byte:03}");
            }
        }
    }
    text.push('\'');
    text.into_bytes()
}

/// The name of a script.
pub fn sha1(source: &[u8]) -> Vec<u8> {
    let mut hex = String::new();
    for byte in Sha1::digest(source) {
        let _ = write!(hex, "{byte:02x}");
    }
    hex.into_bytes()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn strings_are_quoted() {
        assert_eq!(quote(b"a'\\\0\xff1"), b"'a\\039\\092\\000\\2551'");
        assert_eq!(sha1(b"abc"), b"a9993e364706816aba3e25717850c26c9cd0d89d");
    }
}
