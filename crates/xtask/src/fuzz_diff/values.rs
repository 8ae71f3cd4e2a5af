//! The arguments that calls are drawn from: keys, fields, numbers, texts.

use std::time::{SystemTime, UNIX_EPOCH};

use kvasir_keyspace::spec::ArgumentKind;

use crate::random::Random;

/// Databases that calls use; the servers have more.
pub const DATABASES: i64 = 4;

/// The longest text.
const TEXT_BYTES_MAX: usize = 200 * 1024;

/// Values around which arithmetic and bounds go wrong.
const NUMBERS: [&str; 26] = [
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
const NO_NUMBERS: [&str; 16] = [
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

const FLOATS: [&str; 24] = [
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

const PATTERNS: [&str; 14] = [
    "*", "k*", "*1*", "?1", "k[1-3]", "k[^1]", "*{t}*", "h?", "\\*", "[", "nothing", "", "*[0-9]",
    "f*",
];

const TYPES: [&str; 8] = ["string", "hash", "list", "set", "zset", "stream", "STRING", "nosuch"];

/// The sets of one epoch.
pub struct Values {
    /// How many keys of each family there are.
    key_count: usize,
    field_count: usize,
}

impl Values {
    pub fn new(random: &mut Random) -> Values {
        Values {
            key_count: *random.pick(&[3, 12, 60, 500]),
            field_count: *random.pick(&[5, 30, 300]),
        }
    }

    pub fn draw(
        &self,
        kind: ArgumentKind,
        name: &str,
        group: &str,
        random: &mut Random,
    ) -> Vec<u8> {
        match (kind, name) {
            (ArgumentKind::Key, _) => self.key(group, random),
            (ArgumentKind::Pattern, _) => random.pick(&PATTERNS).as_bytes().to_vec(),
            (ArgumentKind::UnixTime, _) => time(name.contains("milli"), random),
            (ArgumentKind::Double, _) => self.float(random),
            (_, "field" | "member" | "element") => self.field(random),
            (_, "type") => random.pick(&TYPES).as_bytes().to_vec(),
            (_, "cursor") if random.percent(95) => b"0".to_vec(),
            (_, "seconds" | "milliseconds") => duration(random),
            (_, "index" | "index1" | "index2" | "db" | "destination-db") => {
                random.range(-1, DATABASES).min(DATABASES - 1).to_string().into_bytes()
            }
            (_, "count" | "offset" | "start" | "end" | "len") if random.percent(85) => {
                random.range(-12, 40).to_string().into_bytes()
            }
            (ArgumentKind::Integer, _) => self.integer(random),
            (_, "increment" | "decrement") => self.float(random),
            _ => self.value(random),
        }
    }

    /// A key: mostly of the family that the command works on, in several slots, some sharing a
    /// hash tag.
    fn key(&self, group: &str, random: &mut Random) -> Vec<u8> {
        let number = random.below(self.key_count);
        let family = match group {
            "hash" if random.percent(85) => "h",
            "string" if random.percent(85) => "k",
            _ => *random.pick(&["k", "h"]),
        };
        match number % 9 {
            0 if number == 0 && random.percent(30) => Vec::new(),
            1 => format!("{{t}}{family}{number}").into_bytes(),
            2 => format!("{family}{{t}}{number}").into_bytes(),
            3 => format!("{family}\0\r\n\u{fe}{number}").into_bytes(),
            4 if number == 4 => format!("{family}{}", "long".repeat(60)).into_bytes(),
            5 => format!("{number}").into_bytes(),
            _ => format!("{family}{number}").into_bytes(),
        }
    }

    fn field(&self, random: &mut Random) -> Vec<u8> {
        match random.below(12) {
            0 => Vec::new(),
            1 => random.pick(&NUMBERS).as_bytes().to_vec(),
            2 => vec![0xff, 0, b'\r', b'\n', random.below(4) as u8],
            3 if random.once_in(8) => vec![b'F'; 60 + random.below(10)],
            _ => format!("f{}", random.below(self.field_count)).into_bytes(),
        }
    }

    pub fn integer(&self, random: &mut Random) -> Vec<u8> {
        match random.below(10) {
            0 => random.pick(&NO_NUMBERS).as_bytes().to_vec(),
            1..4 => random.pick(&NUMBERS).as_bytes().to_vec(),
            4 => (random.next() as i64).to_string().into_bytes(),
            _ => random.range(-20, 100).to_string().into_bytes(),
        }
    }

    fn float(&self, random: &mut Random) -> Vec<u8> {
        match random.below(10) {
            0 => random.pick(&NO_NUMBERS).as_bytes().to_vec(),
            1..5 => random.pick(&FLOATS).as_bytes().to_vec(),
            5 => {
                let value = random.range(-1_000_000, 1_000_000) as f64 / 1000.0;
                format!("{value}").into_bytes()
            }
            _ => random.range(-100, 100).to_string().into_bytes(),
        }
    }

    pub fn value(&self, random: &mut Random) -> Vec<u8> {
        match random.below(16) {
            0..5 => self.integer(random),
            5 => self.float(random),
            6 => Vec::new(),
            7 => {
                let len = random.below(20);
                random.bytes(len)
            }
            // Around where strings change their encoding, and fields theirs.
            8 => vec![b'x'; 40 + random.below(8)],
            9 => vec![b'y'; 60 + random.below(8)],
            10 => {
                let len = random.below(300);
                random.bytes(len)
            }
            11 if random.once_in(60) => {
                let len = random.below(TEXT_BYTES_MAX);
                vec![b'a' + random.below(26) as u8; len]
            }
            _ => format!("value{}", random.below(1000)).into_bytes(),
        }
    }
}

/// A time to live: long, or none.
fn duration(random: &mut Random) -> Vec<u8> {
    let value: i64 = match random.below(10) {
        0 => 0,
        1 => -random.range(1, 1_000_000),
        2 => *random.pick(&[i64::MAX, i64::MIN, i64::MAX / 1000, i64::MIN / 1000]),
        _ => random.range(1_000_000_000, 9_000_000_000),
    };
    value.to_string().into_bytes()
}

/// A moment far away.
fn time(is_ms: bool, random: &mut Random) -> Vec<u8> {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |age| age.as_secs() as i64);
    let unit = if is_ms { 1000 } else { 1 };
    let value: i64 = match random.below(10) {
        0 => random.range(-10, 100_000),
        1 => *random.pick(&[i64::MAX, i64::MIN, i64::MAX / 1000, 0]),
        2 => (now - random.range(100_000, 1_000_000)) * unit,
        _ => (now + random.range(1_000_000, 100_000_000)) * unit,
    };
    value.to_string().into_bytes()
}
