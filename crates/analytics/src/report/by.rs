//! What keys that are summed up have in common.

use kvasir_keyspace::value::{Kind, Record, Tag};
use kvasir_structures::crc16;

/// More separators than this in a prefix are one key each in practice.
pub const DEPTH_MAX: usize = 16;

/// The words that name one.
pub const NAMES: [&str; 5] = ["prefix", "type", "ttl", "encoding", "slot"];

/// Seconds that a key has left at most, and what such keys are called.
const LIVES: [(u64, &str); 5] = [
    (60, "<1m"),
    (60 * 60, "<1h"),
    (24 * 60 * 60, "<1d"),
    (7 * 24 * 60 * 60, "<7d"),
    (30 * 24 * 60 * 60, "<30d"),
];
const LONGER: &str = ">=30d";
const FOREVER: &str = "none";

#[derive(Clone, PartialEq, Eq, Debug)]
pub enum By {
    /// What stands before the separator, with it; with `depth` before as many of them, or before
    /// the last one if there are fewer. The empty prefix: there is no separator.
    Prefix {
        separator: Vec<u8>,
        depth: usize,
    },
    Type,
    /// How long keys have left.
    Ttl,
    /// As OBJECT ENCODING has it.
    Encoding,
    Slot,
}

impl By {
    /// What one of [`NAMES`] says, in any case; of prefixes up to this separator.
    pub fn from_name(name: &[u8], separator: &[u8], depth: usize) -> Option<By> {
        let at = NAMES.iter().position(|known| name.eq_ignore_ascii_case(known.as_bytes()))?;
        let separator = separator.to_vec();
        Some(
            [By::Prefix { separator, depth }, By::Type, By::Ttl, By::Encoding, By::Slot][at]
                .clone(),
        )
    }

    pub fn name(&self) -> &'static str {
        match self {
            By::Prefix { .. } => NAMES[0],
            By::Type => NAMES[1],
            By::Ttl => NAMES[2],
            By::Encoding => NAMES[3],
            By::Slot => NAMES[4],
        }
    }

    /// The slot of a key, if that is asked for.
    pub fn slot(&self, key: &[u8]) -> u16 {
        if *self == By::Slot { crc16::slot_of(key) } else { 0 }
    }

    /// How much of a key is its prefix, if that is asked for.
    pub fn prefix_len(&self, key: &[u8]) -> usize {
        match self {
            By::Prefix { separator, depth } => prefix(key, separator, *depth).len(),
            _ => 0,
        }
    }
}

/// The part of a key up to as many separators.
pub fn prefix<'k>(key: &'k [u8], separator: &[u8], depth: usize) -> &'k [u8] {
    let mut end = 0;
    for _ in 0..depth {
        let rest = &key[end..];
        let found = match separator {
            [] => None,
            [byte] => rest.iter().position(|other| other == byte),
            _ => rest.windows(separator.len()).position(|part| part == separator),
        };
        let Some(found) = found else { break };
        end += found + separator.len();
    }
    &key[..end]
}

pub fn life(ttl_ms: Option<u64>) -> &'static str {
    let Some(ttl_ms) = ttl_ms else { return FOREVER };
    let found = LIVES.iter().find(|(seconds, _)| ttl_ms < seconds * 1000);
    found.map_or(LONGER, |(_, name)| name)
}

pub fn kind(record: Record<'_>) -> Kind {
    Tag::of(record).kind()
}
