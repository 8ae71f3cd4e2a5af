//! Which clients may have which keys in their caches: told once when the key changes, then
//! forgotten.
//!
//! As in Redis a key is the same in every database. Clients that have gone stay listed until the
//! key changes: ids are never used again.

use std::sync::atomic::AtomicUsize;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, Mutex, MutexGuard};

use kvasir_pubsub::Names;
use kvasir_structures::hash;
use kvasir_structures::locks::lock;
use smallvec::SmallVec;

/// Keys are spread over so many locks.
const SHARDS: usize = 64;

/// Ids of clients, in order.
pub type Readers = SmallVec<[u64; 2]>;

pub struct Keys {
    shards: [Mutex<Names<Readers>>; SHARDS],
    count: AtomicUsize,
    reader_count: AtomicUsize,
}

impl Default for Keys {
    fn default() -> Keys {
        Keys {
            shards: std::array::from_fn(|_| Mutex::default()),
            count: AtomicUsize::new(0),
            reader_count: AtomicUsize::new(0),
        }
    }
}

impl Keys {
    /// How many keys clients may have.
    pub fn count(&self) -> usize {
        self.count.load(Relaxed)
    }

    /// How many clients, summed over the keys.
    pub fn reader_count(&self) -> usize {
        self.reader_count.load(Relaxed)
    }

    pub fn add(&self, key: &[u8], client: u64) {
        let mut keys = self.shard(key);
        if !keys.contains_key(key) {
            keys.insert(Arc::from(key), Readers::new());
            self.count.fetch_add(1, Relaxed);
        }
        let readers = keys.get_mut(key).expect("just looked at");
        if let Err(place) = readers.binary_search(&client) {
            readers.insert(place, client);
            self.reader_count.fetch_add(1, Relaxed);
        }
    }

    /// Forgets a key, and says who may have it.
    pub fn take(&self, key: &[u8]) -> Option<Readers> {
        let readers = self.shard(key).remove(key)?;
        self.note_taken(&readers);
        Some(readers)
    }

    /// Forgets any key but `newest`, if there are more than `max`.
    pub fn take_surplus(&self, max: usize, newest: &[u8]) -> Option<(Arc<[u8]>, Readers)> {
        if self.count() <= max {
            return None;
        }
        let first = index_of(newest);
        for step in 0..SHARDS {
            let mut keys = lock(&self.shards[(first + step) % SHARDS]);
            let Some(key) = keys.keys().find(|key| ***key != *newest).cloned() else { continue };
            let readers = keys.remove(&key).expect("just looked at");
            self.note_taken(&readers);
            return Some((key, readers));
        }
        None
    }

    /// Forgets any keys beyond so many, and says who may have them.
    pub fn take_beyond(&self, max: usize) -> Vec<(Arc<[u8]>, Readers)> {
        let mut taken = Vec::new();
        for shard in &self.shards {
            let surplus = self.count().saturating_sub(max);
            let of_shard: Vec<_> = lock(shard).extract_if(|_, _| true).take(surplus).collect();
            of_shard.iter().for_each(|(_, readers)| self.note_taken(readers));
            taken.extend(of_shard);
        }
        taken
    }

    pub fn clear(&self) {
        for shard in &self.shards {
            let keys = std::mem::take(&mut *lock(shard));
            keys.values().for_each(|readers| self.note_taken(readers));
        }
    }

    fn note_taken(&self, readers: &Readers) {
        self.count.fetch_sub(1, Relaxed);
        self.reader_count.fetch_sub(readers.len(), Relaxed);
    }

    fn shard(&self, key: &[u8]) -> MutexGuard<'_, Names<Readers>> {
        lock(&self.shards[index_of(key)])
    }
}

/// The high bits: the map of the shard goes by the low ones.
fn index_of(key: &[u8]) -> usize {
    (hash::of(key) >> 32) as usize % SHARDS
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_is_told_once_to_each_reader() {
        let keys = Keys::default();
        for (key, client) in [("a", 2), ("a", 1), ("a", 2), ("b", 1)] {
            keys.add(key.as_bytes(), client);
        }
        assert_eq!((keys.count(), keys.reader_count()), (2, 3));
        assert_eq!(keys.take(b"a").as_deref(), Some(&[1, 2][..]));
        assert_eq!(keys.take(b"a"), None);
        assert_eq!((keys.count(), keys.reader_count()), (1, 1));
        keys.clear();
        assert_eq!((keys.count(), keys.reader_count()), (0, 0));
    }

    #[test]
    fn as_many_are_taken_as_are_too_many() {
        let keys = Keys::default();
        (0..1000u32).for_each(|key| keys.add(&key.to_le_bytes(), 1));
        assert_eq!(keys.take_beyond(1000), Vec::new());
        assert_eq!(keys.take_beyond(10).len(), 990);
        assert_eq!((keys.count(), keys.reader_count()), (10, 10));
    }

    #[test]
    fn the_newest_key_stays() {
        let keys = Keys::default();
        keys.add(b"old", 1);
        keys.add(b"new", 1);
        assert_eq!(keys.take_surplus(2, b"new"), None);
        assert_eq!(keys.take_surplus(1, b"new").unwrap().0, Arc::from(*b"old"));
        assert_eq!(keys.take_surplus(0, b"new"), None);
    }
}
