//! How many subscribers each worker has, by channel or pattern: what publishers look at.
//!
//! Read by every publisher, changed by those who subscribe and unsubscribe; a name without
//! subscribers is not kept.

use std::sync::atomic::AtomicUsize;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, RwLock, RwLockReadGuard, RwLockWriteGuard};

use kvasir_structures::hash;
use kvasir_structures::locks::{read, write};
use smallvec::SmallVec;

use crate::Names;

pub struct Index {
    shards: Box<[RwLock<Names<Receivers>>]>,
    /// Names in all shards.
    count: AtomicUsize,
}

/// The subscribers of one name: their number for each worker that has any.
#[derive(Default)]
pub struct Receivers(SmallVec<[(u16, u32); 2]>);

impl Receivers {
    /// Workers and how many subscribers each has.
    pub fn by_worker(&self) -> impl Iterator<Item = (usize, u32)> {
        self.0.iter().map(|(worker, count)| (usize::from(*worker), *count))
    }

    /// How many subscribers there are.
    pub fn count(&self) -> u64 {
        self.0.iter().map(|(_, count)| u64::from(*count)).sum()
    }

    fn add(&mut self, worker: usize) {
        match self.0.iter_mut().find(|(of, _)| usize::from(*of) == worker) {
            Some((_, count)) => *count += 1,
            None => self.0.push((worker as u16, 1)),
        }
    }

    fn remove(&mut self, worker: usize) {
        let of = |(of, _): &(u16, u32)| usize::from(*of) == worker;
        let place = self.0.iter().position(of).expect("who leaves has joined");
        self.0[place].1 -= 1;
        if self.0[place].1 == 0 {
            self.0.swap_remove(place);
        }
    }
}

impl Index {
    pub fn new(shards: usize) -> Index {
        Index {
            shards: (0..shards).map(|_| RwLock::default()).collect(),
            count: AtomicUsize::new(0),
        }
    }

    /// How many names have subscribers.
    pub fn count(&self) -> usize {
        self.count.load(Relaxed)
    }

    /// The shard with this name; nobody joins or leaves it while the guard lives.
    pub fn read(&self, name: &[u8]) -> RwLockReadGuard<'_, Names<Receivers>> {
        read(self.shard(name))
    }

    /// How many subscribers a name has.
    pub fn subscriber_count(&self, name: &[u8]) -> u64 {
        self.read(name).get(name).map_or(0, Receivers::count)
    }

    /// Names that `is_wanted`, in any order.
    pub fn names(&self, is_wanted: impl Fn(&[u8]) -> bool) -> Vec<Arc<[u8]>> {
        let wanted = |shard: &RwLock<Names<Receivers>>| -> Vec<Arc<[u8]>> {
            let names = read(shard);
            names.keys().filter(|name| is_wanted(name)).cloned().collect()
        };
        self.shards.iter().flat_map(wanted).collect()
    }

    /// Adds a subscriber of a worker, and does something before any publisher sees that. Returns
    /// the name as it is shared.
    pub fn join(&self, name: &[u8], worker: usize, meanwhile: impl FnOnce()) -> Arc<[u8]> {
        let mut names = self.write(name);
        meanwhile();
        let shared = match names.get_key_value(name) {
            Some((shared, _)) => Arc::clone(shared),
            None => {
                self.count.fetch_add(1, Relaxed);
                Arc::from(name)
            }
        };
        names.entry(Arc::clone(&shared)).or_default().add(worker);
        shared
    }

    /// Takes a subscriber of a worker away, and does something before any publisher sees that.
    pub fn leave(&self, name: &[u8], worker: usize, meanwhile: impl FnOnce()) {
        let mut names = self.write(name);
        meanwhile();
        let receivers = names.get_mut(name).expect("who leaves has joined");
        receivers.remove(worker);
        if receivers.0.is_empty() {
            names.remove(name);
            self.count.fetch_sub(1, Relaxed);
        }
    }

    fn write(&self, name: &[u8]) -> RwLockWriteGuard<'_, Names<Receivers>> {
        write(self.shard(name))
    }

    fn shard(&self, name: &[u8]) -> &RwLock<Names<Receivers>> {
        match &*self.shards {
            [only] => only,
            // The high bits: the map of the shard goes by the low ones.
            shards => &shards[(hash::of(name) >> 32) as usize % shards.len()],
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn subscribers_are_counted_by_worker_and_nothing_is_left_of_them() {
        let index = Index::new(4);
        for worker in [0, 7, 7, 255] {
            index.join(b"c", worker, || ());
        }
        index.join(b"d", 1, || ());
        assert_eq!((index.count(), index.subscriber_count(b"c")), (2, 4));
        assert_eq!(index.names(|name| name == b"c"), [Arc::from(*b"c")]);
        let mut by_worker: Vec<_> = index.read(b"c")[&b"c"[..]].by_worker().collect();
        by_worker.sort_unstable();
        assert_eq!(by_worker, [(0, 1), (7, 2), (255, 1)]);
        for worker in [7, 255, 0, 7] {
            index.leave(b"c", worker, || ());
        }
        assert_eq!((index.count(), index.subscriber_count(b"c")), (1, 0));
        index.leave(b"d", 1, || ());
        assert!(index.names(|_| true).is_empty());
    }
}
