//! The arguments that calls are drawn from, by their names in the command table: keys, fields,
//! members, scores, ids, coordinates, numbers, texts.
//!
//! The sets are small, so that calls meet.

use std::cell::Cell;
use std::time::{SystemTime, UNIX_EPOCH};

use kvasir_harness::random::Random;
use kvasir_keyspace::spec::ArgumentKind;

use super::intended::Peer;
use super::pools::{
    BITFIELD_TYPES, FLOATS, LATITUDES, LONGITUDES, NO_NUMBERS, NUMBERS, PATTERNS, SCORE_BOUNDS,
    SORT_PATTERNS, STREAM_BOUNDS, TYPES,
};

/// Databases that calls use; the servers have more.
pub const DATABASES: i64 = 4;

/// The longest text.
const TEXT_BYTES_MAX: usize = 200 * 1024;

/// The sets of one epoch.
pub struct Values {
    /// How many keys of each family there are.
    key_count: usize,
    field_count: usize,
    /// Members of sets are integers, so that there are intsets.
    has_numeric_members: bool,
    /// All members of a sorted set have the same score, so that they are ordered by their bytes.
    has_one_score: bool,
    /// Whether the peer reads hexadecimal scores, and bounds with a space before them. Redis 7.0
    /// and Kvasir do, Valkey does not.
    is_lenient: bool,
    /// The time of streams, which mostly grow.
    stream_ms: Cell<u64>,
}

impl Values {
    pub fn new(peer: Peer, random: &mut Random) -> Values {
        Values {
            key_count: *random.pick(&[3, 12, 60, 500]),
            field_count: *random.pick(&[5, 30, 300]),
            has_numeric_members: random.percent(50),
            has_one_score: random.percent(25),
            is_lenient: peer == Peer::Redis,
            stream_ms: Cell::new(1),
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
            (ArgumentKind::Key, _) => return self.key(group, random),
            (ArgumentKind::UnixTime, _) => return time(name.contains("milli"), random),
            (ArgumentKind::Pattern, "by-pattern" | "get-pattern") => {
                return random.pick(&SORT_PATTERNS).as_bytes().to_vec();
            }
            (ArgumentKind::Pattern, _) => return random.pick(&PATTERNS).as_bytes().to_vec(),
            _ => {}
        }
        let of_type = match group {
            "stream" => self.of_stream(name, random),
            "sorted-set" => self.of_sorted_set(kind, name, random),
            "geo" => self.of_geo(name, random),
            "bitmap" => self.of_bitmap(name, random),
            "list" if name == "index" => Some(small(random)),
            _ => None,
        };
        of_type.unwrap_or_else(|| self.of_any(kind, name, group, random))
    }

    fn of_any(&self, kind: ArgumentKind, name: &str, group: &str, random: &mut Random) -> Vec<u8> {
        match (kind, name) {
            (_, "timeout") => b"0.002".to_vec(),
            (ArgumentKind::Double, _) => self.float(random),
            (_, "element") if random.percent(40) => self.value(random),
            (_, "field" | "element" | "pivot") => self.field(random),
            (_, "member" | "member1" | "member2") => self.member(group, random),
            (_, "type") => random.pick(&TYPES).as_bytes().to_vec(),
            (_, "cursor") if random.percent(95) => b"0".to_vec(),
            (_, "seconds" | "milliseconds") => duration(random),
            (_, "index" | "index1" | "index2" | "db" | "destination-db") => {
                random.range(-1, DATABASES).min(DATABASES - 1).to_string().into_bytes()
            }
            (_, "rank") => random.range(-3, 3).to_string().into_bytes(),
            (
                _,
                "count" | "offset" | "start" | "stop" | "end" | "len" | "limit" | "num-matches",
            ) if random.percent(85) => small(random),
            (_, "weight") => self.float(random),
            (ArgumentKind::Integer, _) => self.integer(random),
            (_, "increment" | "decrement") => self.float(random),
            _ => self.value(random),
        }
    }

    fn of_stream(&self, name: &str, random: &mut Random) -> Option<Vec<u8>> {
        Some(match name {
            "id" | "last-id" | "lastid" | "max-deleted-id" | "start" | "end" => {
                self.stream_id(random)
            }
            "threshold" if random.percent(60) => random.range(0, 30).to_string().into_bytes(),
            "threshold" => self.stream_id(random),
            "group" => format!("g{}", random.below(3)).into_bytes(),
            "consumer" => format!("c{}", random.below(4)).into_bytes(),
            // What is neither now nor far away depends on when we look.
            "min-idle-time" | "ms" => {
                random.pick(&["0", "1000000000", "-1", "x"]).as_bytes().into()
            }
            "entries-added" | "entriesread" => random.range(-2, 60).to_string().into_bytes(),
            _ => return None,
        })
    }

    /// Mostly later than all before it, so that XADD takes it; else one that may be there.
    fn stream_id(&self, random: &mut Random) -> Vec<u8> {
        let now = self.stream_ms.get();
        match random.below(12) {
            0..5 => {
                self.stream_ms.set(now + random.below(3) as u64);
                format!("{now}-{}", random.below(4)).into_bytes()
            }
            5 => format!("{now}-*").into_bytes(),
            6 => random.pick(&STREAM_BOUNDS).as_bytes().to_vec(),
            7 => format!("({}", random.below(now as usize + 1)).into_bytes(),
            8 => b">".to_vec(),
            9 => random.below(now as usize + 1).to_string().into_bytes(),
            _ => format!("{}-{}", random.below(now as usize + 1), random.below(4)).into_bytes(),
        }
    }

    fn of_sorted_set(
        &self,
        kind: ArgumentKind,
        name: &str,
        random: &mut Random,
    ) -> Option<Vec<u8>> {
        Some(match (kind, name) {
            (ArgumentKind::Double, "min" | "max") => self.score_bound(random),
            (_, "min" | "max") => self.lex_bound(random),
            (_, "score" | "increment") if self.has_one_score => b"0".to_vec(),
            (_, "score" | "increment") => self.float(random),
            (ArgumentKind::String, "start" | "stop") => match random.below(4) {
                0 => self.score_bound(random),
                1 => self.lex_bound(random),
                _ => small(random),
            },
            _ => return None,
        })
    }

    pub fn score_bound(&self, random: &mut Random) -> Vec<u8> {
        match random.below(4) {
            0 => random.pick(&SCORE_BOUNDS).as_bytes().to_vec(),
            1 => [b"(".to_vec(), self.float(random)].concat(),
            _ => self.float(random),
        }
    }

    pub fn lex_bound(&self, random: &mut Random) -> Vec<u8> {
        match random.below(8) {
            0 => b"-".to_vec(),
            1 => b"+".to_vec(),
            2 => self.field(random),
            3..5 => [b"(".to_vec(), self.field(random)].concat(),
            _ => [b"[".to_vec(), self.field(random)].concat(),
        }
    }

    fn of_bitmap(&self, name: &str, random: &mut Random) -> Option<Vec<u8>> {
        Some(match name {
            "encoding" => random.pick(&BITFIELD_TYPES).as_bytes().to_vec(),
            "offset" => match random.below(12) {
                0 => self.integer(random),
                1..4 => format!("#{}", random.below(20)).into_bytes(),
                4 => random.range(0, 100_000).to_string().into_bytes(),
                _ => random.range(0, 300).to_string().into_bytes(),
            },
            "bit" => random.pick(&["0", "1", "0", "1", "2", "x"]).as_bytes().to_vec(),
            "value" if random.percent(60) => random.below(2).to_string().into_bytes(),
            "value" | "increment" => self.integer(random),
            _ => return None,
        })
    }

    /// A place on the earth or beyond it, and how far one looks from there.
    fn of_geo(&self, name: &str, random: &mut Random) -> Option<Vec<u8>> {
        // Few places are the same: which of several equally near ones come first is nobody's
        // promise.
        let degrees = |limit: i64, random: &mut Random| {
            let micro = random.range(-limit * 1_000_000, limit * 1_000_000);
            format!("{}", micro as f64 / 1e6).into_bytes()
        };
        Some(match name {
            "longitude" if random.once_in(12) => random.pick(&LONGITUDES).as_bytes().to_vec(),
            "latitude" if random.once_in(12) => random.pick(&LATITUDES).as_bytes().to_vec(),
            "longitude" => degrees(180, random),
            "latitude" => degrees(85, random),
            "radius" | "width" | "height" => match random.below(8) {
                0 => self.no_number(random),
                1 => random.pick(&NUMBERS).as_bytes().to_vec(),
                _ => format!("{}.5", random.below(9000)).into_bytes(),
            },
            _ => return None,
        })
    }

    /// A key: mostly of the family that the command works on, in several slots, some sharing a
    /// hash tag.
    pub fn key(&self, group: &str, random: &mut Random) -> Vec<u8> {
        const FAMILIES: [&str; 8] = ["k", "h", "l", "s", "z", "x", "b", "p"];
        let number = random.below(self.key_count);
        let own = match group {
            "hash" => Some("h"),
            "string" => Some("k"),
            "list" => Some("l"),
            "set" => Some("s"),
            "sorted-set" | "geo" => Some("z"),
            "stream" => Some("x"),
            "bitmap" => Some("b"),
            "hyperloglog" => Some("p"),
            _ => None,
        };
        let family = own.filter(|_| random.percent(88)).unwrap_or_else(|| *random.pick(&FAMILIES));
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

    pub fn field(&self, random: &mut Random) -> Vec<u8> {
        match random.below(12) {
            0 => Vec::new(),
            1 => random.pick(&NUMBERS).as_bytes().to_vec(),
            2 => vec![0xff, 0, b'\r', b'\n', random.below(4) as u8],
            3 if random.once_in(8) => vec![b'F'; 60 + random.below(10)],
            _ => format!("f{}", random.below(self.field_count)).into_bytes(),
        }
    }

    fn member(&self, group: &str, random: &mut Random) -> Vec<u8> {
        if group != "set" || !self.has_numeric_members || random.once_in(200) {
            return self.field(random);
        }
        match random.below(10) {
            0 => random.pick(&NUMBERS).as_bytes().to_vec(),
            _ => random.range(-20, self.field_count as i64).to_string().into_bytes(),
        }
    }

    pub fn integer(&self, random: &mut Random) -> Vec<u8> {
        match random.below(10) {
            0 => self.no_number(random),
            1..4 => random.pick(&NUMBERS).as_bytes().to_vec(),
            4 => (random.next_u64() as i64).to_string().into_bytes(),
            _ => random.range(-20, 100).to_string().into_bytes(),
        }
    }

    fn no_number(&self, random: &mut Random) -> Vec<u8> {
        let text = *random.pick(&NO_NUMBERS);
        let is_read_by_some = text == "0x10" || text == " 1";
        if is_read_by_some && !self.is_lenient { b"abc".to_vec() } else { text.into() }
    }

    fn float(&self, random: &mut Random) -> Vec<u8> {
        match random.below(10) {
            0 => self.no_number(random),
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
            5 => no_denormal(self.float(random)),
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

/// SORT of Redis 7.0 does not take a number that is so near to 0, where Valkey does.
fn no_denormal(text: Vec<u8>) -> Vec<u8> {
    if text.ends_with(b"e-324") { b"1".to_vec() } else { text }
}

/// An index or a count around those of our collections.
fn small(random: &mut Random) -> Vec<u8> {
    random.range(-12, 40).to_string().into_bytes()
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
