//! Which keys of an image are wanted.

use std::collections::HashSet;
use std::ops::Range;

use kvasir_keyspace::value::{Kind, Record, Tag};
use kvasir_keyspace::view::Env;
use kvasir_structures::crc16;
use kvasir_structures::glob::{self, Case};

/// Whether somebody may read a key.
pub type MayRead = Box<dyn Fn(&[u8]) -> bool + Send + Sync>;
/// Whether the keys of a slot are to be seen.
pub type Served = Box<dyn Fn(u16) -> bool + Send + Sync>;

/// All that hold of a key.
pub struct Selection {
    /// `None`: of any type.
    pub kind: Option<Kind>,
    /// `None`: all.
    pub pattern: Option<Vec<u8>>,
    /// `None`: all.
    pub keys: Option<HashSet<Vec<u8>>>,
    pub slots: Range<u16>,
    /// `None`: all of these.
    pub served: Option<Served>,
    /// `None`: every key.
    pub may_read: Option<MayRead>,
}

impl Selection {
    /// All keys that somebody may read.
    pub fn all() -> Selection {
        let slots = 0..crc16::SLOTS;
        Selection { kind: None, pattern: None, keys: None, slots, served: None, may_read: None }
    }

    /// Whether a key that is alive at the moment of `env` is wanted.
    pub fn takes(&self, record: Record<'_>, env: &Env) -> bool {
        let key = record.key();
        let is_it = |pattern: &Vec<u8>| glob::matches(pattern, key, Case::Sensitive);
        self.kind.is_none_or(|kind| Tag::of(record).kind() == kind)
            && self.pattern.as_ref().is_none_or(is_it)
            && self.keys.as_ref().is_none_or(|keys| keys.contains(key))
            && !record.expiry_ms().is_some_and(|ms| env.has_passed(ms))
            && self.served.as_ref().is_none_or(|served| served(crc16::slot_of(key)))
            && self.may_read.as_ref().is_none_or(|may_read| may_read(key))
    }

    /// The slots that may have wanted keys, in order.
    pub fn slots_to_visit(&self) -> Vec<u16> {
        let mut slots: Vec<u16> = match &self.keys {
            None => self.slots.clone().collect(),
            Some(keys) => {
                let slots = keys.iter().map(|key| crc16::slot_of(key));
                slots.filter(|slot| self.slots.contains(slot)).collect()
            }
        };
        slots.sort_unstable();
        slots.dedup();
        slots.retain(|slot| self.served.as_ref().is_none_or(|served| served(*slot)));
        slots
    }
}
