//! Sets of slots, and what a cluster has of them.

use std::fmt;

/// Slots of a cluster.
pub const SLOTS: u16 = 16384;
/// Bytes of a set on the wire.
pub const BITMAP_SIZE: usize = 2048;

/// A set of slots, as packets have it: slot `s` is bit `s % 8` of byte `s / 8`.
#[derive(Clone, PartialEq, Eq)]
pub struct SlotSet {
    bits: Box<[u8; BITMAP_SIZE]>,
    count: u16,
}

impl Default for SlotSet {
    fn default() -> SlotSet {
        SlotSet { bits: Box::new([0; BITMAP_SIZE]), count: 0 }
    }
}

impl SlotSet {
    /// Fewer bytes leave the rest empty.
    pub fn from_bytes(bytes: &[u8]) -> SlotSet {
        let mut set = SlotSet::default();
        set.bits.iter_mut().zip(bytes).for_each(|(to, from)| *to = *from);
        let words = set.bits.chunks_exact(8).filter_map(|chunk| chunk.try_into().ok());
        set.count = words.map(|word| u64::from_ne_bytes(word).count_ones() as u16).sum();
        set
    }

    pub fn bytes(&self) -> &[u8; BITMAP_SIZE] {
        &self.bits
    }

    pub fn len(&self) -> u16 {
        self.count
    }

    pub fn is_empty(&self) -> bool {
        self.count == 0
    }

    pub fn contains(&self, slot: u16) -> bool {
        self.bits.get(usize::from(slot / 8)).is_some_and(|byte| byte & (1 << (slot % 8)) != 0)
    }

    /// Whether it was not there.
    pub fn insert(&mut self, slot: u16) -> bool {
        let is_new = slot < SLOTS && !self.contains(slot);
        if is_new {
            self.bits[usize::from(slot / 8)] |= 1 << (slot % 8);
            self.count += 1;
        }
        is_new
    }

    /// Whether it was there.
    pub fn remove(&mut self, slot: u16) -> bool {
        let was_there = self.contains(slot);
        if was_there {
            self.bits[usize::from(slot / 8)] &= !(1 << (slot % 8));
            self.count -= 1;
        }
        was_there
    }

    pub fn iter(&self) -> impl Iterator<Item = u16> + '_ {
        let filled = self.bits.iter().enumerate().filter(|(_, byte)| **byte != 0);
        filled.flat_map(|(at, byte)| {
            let first = at as u16 * 8;
            (0..8).filter(move |bit| byte & (1 << bit) != 0).map(move |bit| first + bit)
        })
    }

    /// First and last slot of each run.
    pub fn ranges(&self) -> Vec<(u16, u16)> {
        let mut ranges: Vec<(u16, u16)> = Vec::new();
        for slot in self.iter() {
            match ranges.last_mut() {
                Some((_, last)) if *last + 1 == slot => *last = slot,
                _ => ranges.push((slot, slot)),
            }
        }
        ranges
    }
}

impl SlotSet {
    /// Its runs as `first-last`, or the slot alone.
    pub fn words(&self, between: &str) -> String {
        let word = |(first, last): &(u16, u16)| match first == last {
            true => first.to_string(),
            false => format!("{first}-{last}"),
        };
        self.ranges().iter().map(word).collect::<Vec<_>>().join(between)
    }

    /// What `words` has written; `None` if this is something else.
    pub fn parse(text: &str, between: char) -> Option<SlotSet> {
        let mut set = SlotSet::default();
        for word in text.split(between).filter(|word| !word.is_empty()) {
            let (first, last) = word.split_once('-').unwrap_or((word, word));
            let (first, last): (u16, u16) = (first.parse().ok()?, last.parse().ok()?);
            if first > last || last >= SLOTS {
                return None;
            }
            (first..=last).for_each(|slot| {
                set.insert(slot);
            });
        }
        Some(set)
    }
}

impl FromIterator<u16> for SlotSet {
    fn from_iter<I: IntoIterator<Item = u16>>(slots: I) -> SlotSet {
        let mut set = SlotSet::default();
        slots.into_iter().for_each(|slot| {
            set.insert(slot);
        });
        set
    }
}

impl fmt::Debug for SlotSet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.ranges()).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_and_bytes() {
        let set: SlotSet = [0, 1, 2, 9, 16383].into_iter().collect();
        assert_eq!(set.ranges(), [(0, 2), (9, 9), (16383, 16383)]);
        assert_eq!(set.bytes()[..2], [0b111, 0b10]);
        assert_eq!(SlotSet::from_bytes(set.bytes()), set);
        assert_eq!(set.len(), 5);
    }

    #[test]
    fn what_is_no_slot_is_in_no_set() {
        let mut set = SlotSet::default();
        assert!(!set.insert(16384));
        assert!(!set.contains(65535));
        assert!(!set.remove(16384));
    }
}
