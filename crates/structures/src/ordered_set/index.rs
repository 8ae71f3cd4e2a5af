//! From a hash to a member: linear hashing over short sorted arrays.
//!
//! Partition `i` holds the words of the members whose hash ends in `i`, sorted by the upper 11 bits
//! of the hash, which stand in the words' free bits: a word's place can be guessed from its tag,
//! and is off by a few. The table grows by one partition at a time, which takes half of another, so
//! no insertion pays for more than some dozens of members. Arrays are as long as they need to be:
//! a word costs 8 bytes and little more.
//!
//! A scan goes by the reversed hash, in whose order a partition is one interval however far the
//! table has grown: what is there during a whole scan is seen.

use super::member::{Member, WORD_BITS};
use super::snug::SnugVec;

/// Members per partition at which one more partition is made. Between two doublings some partitions
/// hold twice as many as others, so this is an average.
const LOAD_MAX: usize = 40;
/// Members per partition below which the last partition is merged away.
const LOAD_MIN: usize = 16;
/// Partitions in one piece of the directory; only the first piece grows by copying.
const SEGMENT: usize = 512;
const TAG_BITS: u32 = 64 - WORD_BITS;

type Partition = SnugVec<u64>;

pub(super) struct Index {
    segments: Vec<Vec<Partition>>,
    partition_count: usize,
    len: usize,
}

impl Index {
    pub(super) fn new() -> Index {
        Index { segments: vec![vec![Partition::new()]], partition_count: 1, len: 0 }
    }

    pub(super) fn allocated_bytes(&self) -> usize {
        let segments = self.segments.iter();
        let handles: usize = segments.map(|segment| segment.capacity()).sum();
        let words: usize =
            self.segments.iter().flatten().map(|partition| partition.allocated_bytes()).sum();
        handles * size_of::<Partition>()
            + self.segments.capacity() * size_of::<Vec<Partition>>()
            + words
    }

    /// The member with this hash that `is_it` knows.
    #[inline]
    pub(super) fn find(&self, hash: u64, is_it: impl Fn(Member) -> bool) -> Option<Member> {
        let words = self.partition(self.place(hash));
        let found = position(words, hash, |word| is_it(Member::from_word(word)))?;
        Some(Member::from_word(words[found]))
    }

    /// Adds a member that is not in it. `hash_of` tells the hash of others, which may have to move.
    pub(super) fn insert(&mut self, hash: u64, member: Member, hash_of: impl Fn(Member) -> u64) {
        let place = self.place(hash);
        let words = self.partition_mut(place);
        let at = first_of(words, hash);
        words.insert(at, with_tag(hash, member));
        self.len += 1;
        if self.len > self.partition_count * LOAD_MAX {
            self.split(hash_of);
        }
    }

    /// Takes out a member that is in it.
    pub(super) fn remove(&mut self, hash: u64, member: Member) {
        let place = self.place(hash);
        let words = self.partition_mut(place);
        let at = position(words, hash, |word| Member::from_word(word) == member);
        words.remove(at.expect("the member is in the index"));
        self.len -= 1;
        if self.partition_count > 1 && self.len < self.partition_count * LOAD_MIN {
            self.merge();
        }
    }

    /// Calls `f` with the members of one partition; returns the position where the next call goes
    /// on, 0 at the end.
    pub(super) fn scan(&self, position: u64, mut f: impl FnMut(Member)) -> u64 {
        let hash = position.reverse_bits();
        let place = self.place(hash);
        self.partition(place).iter().for_each(|word| f(Member::from_word(*word)));
        // Behind the interval of reversed hashes that begin with the partition's bits; the last one
        // ends at 2^64, which is 0.
        match self.bits_of(place) {
            0 => 0,
            bits => ((position >> (64 - bits)) + 1) << (64 - bits),
        }
    }

    pub(super) fn len(&self) -> usize {
        self.len
    }

    pub(super) fn members(&self) -> impl Iterator<Item = Member> {
        let words = self.segments.iter().flatten().flat_map(|partition| partition.iter());
        words.map(|word| Member::from_word(*word))
    }

    /// Makes one more partition out of half of another.
    fn split(&mut self, hash_of: impl Fn(Member) -> u64) {
        let level = self.partition_count.ilog2();
        let source = self.partition_count - (1 << level);
        let words = self.partition_mut(source);
        words.iter().for_each(|word| Member::from_word(*word).prefetch());
        let goes = |word: &u64| hash_of(Member::from_word(*word)) >> level & 1 == 1;
        let (gone, kept): (Vec<u64>, Vec<u64>) = words.iter().copied().partition(goes);
        *words = Partition::from_slice(&kept);
        self.push(Partition::from_slice(&gone));
    }

    /// Undoes the last split.
    fn merge(&mut self) {
        let Some(gone) = self.pop() else { return };
        let level = self.partition_count.ilog2();
        let words = self.partition_mut(self.partition_count - (1 << level));
        let mut all = [&words[..], &gone[..]].concat();
        all.sort_unstable_by_key(|word| word >> WORD_BITS);
        *words = Partition::from_slice(&all);
    }

    fn push(&mut self, partition: Partition) {
        if self.segments.last().is_none_or(|segment| segment.len() == SEGMENT) {
            self.segments.push(Vec::with_capacity(SEGMENT));
        }
        self.segments.last_mut().expect("just made").push(partition);
        self.partition_count += 1;
    }

    fn pop(&mut self) -> Option<Partition> {
        let partition = self.segments.last_mut()?.pop()?;
        if self.segments.last().is_some_and(|segment| segment.is_empty()) {
            self.segments.pop();
        }
        self.partition_count -= 1;
        Some(partition)
    }

    /// The partition of a hash: its lower bits, one less of them where that partition was not made
    /// yet.
    #[inline]
    fn place(&self, hash: u64) -> usize {
        let mask = self.partition_count.next_power_of_two() - 1;
        let place = hash as usize & mask;
        if place < self.partition_count { place } else { place & (mask >> 1) }
    }

    /// How many bits of the hash decide that it belongs into this partition.
    fn bits_of(&self, place: usize) -> u32 {
        let bits = self.partition_count.next_power_of_two().ilog2();
        let buddy = place | 1 << bits.saturating_sub(1);
        if bits > 0 && buddy >= self.partition_count { bits - 1 } else { bits }
    }

    #[inline]
    fn partition(&self, place: usize) -> &Partition {
        &self.segments[place / SEGMENT][place % SEGMENT]
    }

    #[inline]
    fn partition_mut(&mut self, place: usize) -> &mut Partition {
        &mut self.segments[place / SEGMENT][place % SEGMENT]
    }
}

#[inline]
fn tag_of(hash: u64) -> u64 {
    hash >> WORD_BITS
}

#[inline]
fn with_tag(hash: u64, member: Member) -> u64 {
    tag_of(hash) << WORD_BITS | member.word()
}

/// The first place whose word has no smaller tag. Guessed, then walked to: tags are uniform.
#[inline]
fn first_of(words: &[u64], hash: u64) -> usize {
    let tag = tag_of(hash);
    let mut at = (tag as usize * words.len()) >> TAG_BITS;
    while at > 0 && words[at - 1] >> WORD_BITS >= tag {
        at -= 1;
    }
    while at < words.len() && words[at] >> WORD_BITS < tag {
        at += 1;
    }
    at
}

/// The place of the word with the hash's tag that `is_it` knows.
#[inline]
fn position(words: &[u64], hash: u64, is_it: impl Fn(u64) -> bool) -> Option<usize> {
    let tag = tag_of(hash);
    let first = first_of(words, hash);
    let mut same = words[first..].iter().take_while(|word| **word >> WORD_BITS == tag);
    same.position(|word| is_it(*word)).map(|nth| first + nth)
}
