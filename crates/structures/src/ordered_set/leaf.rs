//! Entries of neighbouring keys in one run of bytes, each key as its distance from a common base.
//!
//! | Bytes of an entry | Field |
//! |---|---|
//! | 7 | the member's word, little endian |
//! | width | (key - base) >> shift, little endian |
//!
//! Keys that stand side by side in a large set share their first bits, and whole numbers, as sort
//! keys of floating point, end in zeros: among five million scores a key takes 2 to 5 bytes, not 8,
//! and none where all are equal. A key that cannot be written so has the whole leaf written anew,
//! in a code with room beyond it. Behind the entries stand 8 more bytes, so that an entry is read
//! by two loads of 8 bytes wherever it stands.

use super::member::{Member, WORD_BITS};
use crate::buffer::Buffer;

/// Entries for which there is room at least when a leaf has grown.
const STEP: usize = 4;
const WORD_BYTES: usize = 7;
/// What one load reads.
const LOAD_BYTES: usize = 8;

const _: () = assert!(WORD_BITS as usize <= 8 * WORD_BYTES);

/// A sort key and the name of a member.
#[derive(Clone, Copy)]
pub(super) struct Entry {
    pub(super) key: u64,
    pub(super) member: Member,
}

/// Entries in order.
#[derive(Clone)]
pub(super) struct Leaf {
    /// The entries and whatever is free, or nothing at all.
    bytes: Buffer,
    code: Code,
    len: u16,
}

/// How keys are written: as multiples of `1 << shift` above a base, in `width` bytes.
#[derive(Clone, Copy)]
struct Code {
    base: u64,
    width: u8,
    shift: u8,
}

impl Leaf {
    pub(super) fn new() -> Leaf {
        Leaf { bytes: Buffer::empty(), code: Code::of(0, 0, 0), len: 0 }
    }

    #[inline]
    pub(super) fn len(&self) -> usize {
        usize::from(self.len)
    }

    #[inline]
    pub(super) fn entry(&self, at: usize) -> Entry {
        let start = self.start(at);
        Entry {
            key: self.code.read(self.load(start + WORD_BYTES)),
            member: Member::from_word(self.load(start)),
        }
    }

    /// What [`Leaf::entry`] has, without its key.
    #[inline]
    pub(super) fn member(&self, at: usize) -> Member {
        Member::from_word(self.load(self.start(at)))
    }

    pub(super) fn entries(&self) -> impl Iterator<Item = Entry> + Clone {
        (0..self.len()).map(|at| self.entry(at))
    }

    pub(super) fn insert(&mut self, at: usize, entry: Entry) {
        assert!(at <= self.len(), "a place in the leaf or at its end");
        self.make_fit(at, entry.key);
        if self.room_for(self.len() + 1) > self.bytes.len() {
            self.rebuild(self.code, self.len() + STEP);
        }
        let (start, behind, end) = (self.start(at), self.start(at + 1), self.start(self.len()));
        self.bytes.copy_within(start..end, behind);
        self.len += 1;
        self.write(at, entry);
    }

    pub(super) fn remove(&mut self, at: usize) -> Entry {
        assert!(at < self.len(), "an entry that there is");
        let (start, behind, end) = (self.start(at), self.start(at + 1), self.start(self.len()));
        let entry = self.entry(at);
        self.bytes.copy_within(behind..end, start);
        self.len -= 1;
        if self.room_for(self.len() + STEP) * 4 < self.bytes.len() * 3 {
            self.rebuild(self.code, self.len());
        }
        entry
    }

    /// Gives an entry another key, which belongs at its place.
    pub(super) fn set_key(&mut self, at: usize, key: u64) {
        let member = self.member(at);
        self.make_fit(at, key);
        self.write(at, Entry { key, member });
    }

    /// Takes the entries from `at` on away.
    pub(super) fn split_off(&mut self, at: usize) -> Leaf {
        let right = Leaf::of(self.entries().skip(at));
        *self = Leaf::of(self.entries().take(at));
        right
    }

    /// Appends the entries of the next leaf.
    pub(super) fn append(&mut self, right: &Leaf) {
        *self = Leaf::of(self.entries().chain(right.entries()));
    }

    pub(super) fn allocated_bytes(&self) -> usize {
        self.bytes.len()
    }

    fn of(entries: impl Iterator<Item = Entry> + Clone) -> Leaf {
        let mut leaf = Leaf::new();
        let Some(low) = entries.clone().map(|entry| entry.key).next() else { return leaf };
        let (len, high, set_bits) = entries.clone().fold((0, low, 0), |(len, _, bits), entry| {
            (len + 1, entry.key, bits | (entry.key - low))
        });
        leaf.code = Code::of(low, high, set_bits);
        leaf.bytes = Buffer::zeroed(leaf.room_for(len));
        leaf.len = len as u16;
        entries.enumerate().for_each(|(at, entry)| leaf.write(at, entry));
        leaf
    }

    /// Makes sure that a key can be written at a place where it belongs.
    #[inline]
    fn make_fit(&mut self, at: usize, key: u64) {
        if !self.code.fits(key) {
            self.recode(at, key);
        }
    }

    #[cold]
    fn recode(&mut self, at: usize, key: u64) {
        let keys = || self.entries().map(|entry| entry.key);
        let low = keys().next().map_or(key, |low| low.min(key));
        let high = keys().last().map_or(key, |high| high.max(key));
        let set_bits = keys().fold(key - low, |bits, key| bits | (key - low));
        let mut code = Code::of(low, high, set_bits);
        if at == 0 {
            // Keys that descend, probably: what the width has to spare goes below.
            code = code.lowered(high);
        }
        self.rebuild(code, self.len() + 1);
    }

    /// Writes all entries anew, in a code that fits them, with room for so many.
    fn rebuild(&mut self, code: Code, len: usize) {
        let mut new = Leaf { bytes: Buffer::empty(), code, len: self.len };
        new.bytes = Buffer::zeroed(new.room_for(len));
        if (code.base, code.width, code.shift) == (self.code.base, self.code.width, self.code.shift)
        {
            let used = self.start(self.len());
            new.bytes[..used].copy_from_slice(&self.bytes[..used]);
        } else {
            self.entries().enumerate().for_each(|(at, entry)| new.write(at, entry));
        }
        *self = new;
    }

    #[inline]
    fn write(&mut self, at: usize, entry: Entry) {
        let (start, width) = (self.start(at), usize::from(self.code.width));
        let bytes = &mut self.bytes[start..start + WORD_BYTES + width];
        bytes[..WORD_BYTES].copy_from_slice(&entry.member.word().to_le_bytes()[..WORD_BYTES]);
        let key = self.code.written(entry.key).to_le_bytes();
        bytes[WORD_BYTES..].copy_from_slice(&key[..width]);
    }

    #[inline]
    fn load(&self, start: usize) -> u64 {
        let bytes = self.bytes[start..start + LOAD_BYTES].try_into().expect("eight bytes");
        u64::from_le_bytes(bytes)
    }

    #[inline]
    fn stride(&self) -> usize {
        WORD_BYTES + usize::from(self.code.width)
    }

    #[inline]
    fn start(&self, at: usize) -> usize {
        at * self.stride()
    }

    fn room_for(&self, len: usize) -> usize {
        len * self.stride() + LOAD_BYTES
    }
}

impl Code {
    /// The narrowest for keys from `low` to `high` whose distances from `low` have these bits.
    fn of(low: u64, high: u64, set_bits: u64) -> Code {
        let shift = if set_bits == 0 { 0 } else { set_bits.trailing_zeros() };
        let bits = u64::BITS - ((high - low) >> shift).leading_zeros();
        Code { base: low, width: bits.div_ceil(8) as u8, shift: shift as u8 }
    }

    /// The same with the lowest base that still fits `high`.
    fn lowered(self, high: u64) -> Code {
        let below = (high >> self.shift).min(self.mask()) << self.shift;
        Code { base: high - below, ..self }
    }

    #[inline]
    fn fits(self, key: u64) -> bool {
        let above = key.wrapping_sub(self.base);
        key >= self.base
            && above >> self.shift << self.shift == above
            && above >> self.shift <= self.mask()
    }

    #[inline]
    fn written(self, key: u64) -> u64 {
        (key - self.base) >> self.shift
    }

    /// The key whose written form stands in the lowest bytes.
    #[inline]
    fn read(self, bytes: u64) -> u64 {
        self.base + ((bytes & self.mask()) << self.shift)
    }

    /// The largest number that has room.
    #[inline]
    fn mask(self) -> u64 {
        !u64::MAX.checked_shl(8 * u32::from(self.width)).unwrap_or(0)
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[derive(Clone, Debug)]
    enum Step {
        Insert(u64, u64),
        Remove(usize),
        SetKey(usize, u64),
        Split(usize),
    }

    fn key() -> impl Strategy<Value = u64> {
        prop_oneof![
            (0..1000u64).prop_map(|n| n << 40 | 1 << 63),
            (0..1000u64).prop_map(|n| 1 << 63 | n),
            prop::sample::select(vec![0, 1, 1 << 63, u64::MAX - 1, u64::MAX]),
            any::<u64>(),
        ]
    }

    fn step() -> impl Strategy<Value = Step> {
        prop_oneof![
            8 => (key(), 0..1u64 << WORD_BITS).prop_map(|(key, word)| Step::Insert(key, word)),
            3 => any::<prop::sample::Index>().prop_map(|at| Step::Remove(at.index(64))),
            2 => (0..64usize, key()).prop_map(|(at, key)| Step::SetKey(at, key)),
            1 => (0..64usize).prop_map(Step::Split),
        ]
    }

    fn words(leaf: &Leaf) -> Vec<(u64, u64)> {
        leaf.entries().map(|entry| (entry.key, entry.member.word())).collect()
    }

    proptest! {
        #[test]
        fn behaves_as_a_sorted_vector(steps in prop::collection::vec(step(), 1..200)) {
            let (mut leaf, mut model) = (Leaf::new(), Vec::<(u64, u64)>::new());
            for step in steps {
                match step {
                    Step::Insert(key, word) => {
                        let at = model.partition_point(|other| *other < (key, word));
                        model.insert(at, (key, word));
                        leaf.insert(at, Entry { key, member: Member::from_word(word) });
                    }
                    Step::Remove(at) if at < model.len() => {
                        prop_assert_eq!(leaf.remove(at).key, model.remove(at).0);
                    }
                    Step::SetKey(at, key) if at < model.len() => {
                        let low = at.checked_sub(1).map_or(0, |before| model[before].0);
                        let high = model.get(at + 1).map_or(u64::MAX, |after| after.0);
                        model[at].0 = key.clamp(low, high);
                        leaf.set_key(at, model[at].0);
                    }
                    Step::Split(at) if at < model.len() => {
                        let right = leaf.split_off(at);
                        prop_assert_eq!(words(&leaf), &model[..at]);
                        prop_assert_eq!(words(&right), &model[at..]);
                        leaf.append(&right);
                    }
                    _ => {}
                }
                prop_assert_eq!(words(&leaf), &model[..]);
            }
        }
    }

    /// What a leaf of 100 takes for an entry, without the word of its member.
    fn key_bytes(key: impl Fn(u64) -> u64) -> usize {
        let mut leaf = Leaf::new();
        for n in 0..100 {
            let key = key(n);
            let at = leaf.entries().take_while(|entry| entry.key < key).count();
            leaf.insert(at, Entry { key, member: Member::from_word(n) });
        }
        usize::from(leaf.code.width)
    }

    #[test]
    fn keys_take_what_they_differ_by() {
        assert_eq!(key_bytes(|_| 1 << 63), 0);
        assert_eq!(key_bytes(|n| u64::MAX - (n << 50)), 1);
        assert_eq!(key_bytes(|n| 5 + (n << 50)), 1);
        assert_eq!(key_bytes(|n| (1 << 63) + n * 500), 2);
        assert_eq!(key_bytes(|n| n * (u64::MAX / 99)), 8);
    }
}
