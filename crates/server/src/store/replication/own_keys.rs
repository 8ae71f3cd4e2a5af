//! Keys that clients of a writable replica have given an expiry. The primary does not know of them,
//! so nobody else deletes them when their time is over.

use std::collections::BTreeSet;
use std::sync::Mutex;
use std::sync::atomic::AtomicUsize;
use std::sync::atomic::Ordering::{Acquire, Release};

use kvasir_keyspace::place::DbIndex;
use kvasir_structures::locks::lock;

type Key = (DbIndex, Vec<u8>);

#[derive(Default)]
pub struct OwnKeys {
    count: AtomicUsize,
    keys: Mutex<BTreeSet<Key>>,
}

impl OwnKeys {
    pub fn count(&self) -> usize {
        self.count.load(Acquire)
    }

    pub fn add(&self, db: DbIndex, key: &[u8]) {
        self.change(|keys| {
            keys.insert((db, key.to_vec()));
        });
    }

    pub fn remove(&self, key: &Key) {
        self.change(|keys| {
            keys.remove(key);
        });
    }

    pub fn clear(&self) {
        self.change(BTreeSet::clear);
    }

    /// Some of those that come behind one.
    pub fn behind(&self, last: Option<&Key>, count: usize) -> Vec<Key> {
        let keys = lock(&self.keys);
        let from = last.map_or(std::ops::Bound::Unbounded, std::ops::Bound::Excluded);
        keys.range((from, std::ops::Bound::Unbounded)).take(count).cloned().collect()
    }

    fn change(&self, change: impl FnOnce(&mut BTreeSet<Key>)) {
        let mut keys = lock(&self.keys);
        change(&mut keys);
        self.count.store(keys.len(), Release);
    }
}
