//! `stats detail`: what was done with keys, by what stands before their delimiter.

use std::collections::BTreeMap;
use std::sync::Mutex;

use kvasir_structures::locks::lock;

/// Prefixes that a worker counts; what else comes is not counted.
const PREFIXES_MAX: usize = 10_000;

/// What was done with the keys of a prefix.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub struct PrefixCounts {
    pub gets: u64,
    pub hits: u64,
    pub sets: u64,
    pub deletes: u64,
}

/// What a call does with a key.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Deed {
    Get { is_hit: bool },
    Set,
    Delete,
}

/// Of one worker, which alone adds to them.
#[derive(Default)]
pub struct Prefixes(Mutex<BTreeMap<Vec<u8>, PrefixCounts>>);

impl Prefixes {
    /// Counts a key that has a prefix.
    pub fn count(&self, key: &[u8], delimiter: u8, deed: Deed) {
        let Some(end) = key.iter().position(|byte| *byte == delimiter) else { return };
        let (mut all, prefix) = (lock(&self.0), &key[..end]);
        if !all.contains_key(prefix) {
            if all.len() >= PREFIXES_MAX {
                return;
            }
            all.insert(prefix.to_vec(), PrefixCounts::default());
        }
        let Some(counts) = all.get_mut(prefix) else { return };
        match deed {
            Deed::Get { is_hit } => {
                counts.gets += 1;
                counts.hits += u64::from(is_hit);
            }
            Deed::Set => counts.sets += 1,
            Deed::Delete => counts.deletes += 1,
        }
    }

    pub fn clear(&self) {
        lock(&self.0).clear();
    }

    /// Adds these counts to those of other workers.
    pub fn add_to(&self, sum: &mut BTreeMap<Vec<u8>, PrefixCounts>) {
        for (prefix, counts) in &*lock(&self.0) {
            let all = sum.entry(prefix.clone()).or_default();
            all.gets += counts.gets;
            all.hits += counts.hits;
            all.sets += counts.sets;
            all.deletes += counts.deletes;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_count_by_what_stands_before_the_delimiter() {
        let (one, other) = (Prefixes::default(), Prefixes::default());
        one.count(b"a:1", b':', Deed::Get { is_hit: true });
        one.count(b"a:1:2", b':', Deed::Get { is_hit: false });
        one.count(b"plain", b':', Deed::Set);
        other.count(b"a:", b':', Deed::Set);
        other.count(b":x", b':', Deed::Delete);
        let mut sum = BTreeMap::new();
        [&one, &other].into_iter().for_each(|all| all.add_to(&mut sum));
        let a = PrefixCounts { gets: 2, hits: 1, sets: 1, deletes: 0 };
        let none = PrefixCounts { deletes: 1, ..PrefixCounts::default() };
        assert_eq!(sum, BTreeMap::from([(b"a".to_vec(), a), (Vec::new(), none)]));
        (0..2 * PREFIXES_MAX)
            .for_each(|at| one.count(format!("{at}:").as_bytes(), b':', Deed::Set));
        let mut sum = BTreeMap::new();
        one.add_to(&mut sum);
        assert_eq!(sum.len(), PREFIXES_MAX);
    }
}
