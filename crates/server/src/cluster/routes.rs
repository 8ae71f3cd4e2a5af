//! For each slot two bits: whether a call about it may run here without a further look.
//!
//! All of them take 4 KiB, so they stay in the nearest cache however slots are mixed. They change
//! with the gate closed, so what a call is told inside the gate is true until it leaves. Whatever
//! is not the usual case is looked up in the state machine.

use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;

use kvasir_cluster::slots::{SLOTS, SlotSet};
use kvasir_cluster::state::Cluster;
use kvasir_cluster::view::Place;

/// A slot is this node's, and nothing is the matter with it.
const OWN: u64 = 0;
/// It is this node's primary's: who wants no more than to read, and has said so, may.
const READABLE: u64 = 1;
const LOOK: u64 = 2;
/// It is on its way: looked up as well, but its arrival is a change that clients have to hear of.
const MOVES: u64 = 3;

/// Slots of one word.
const PER_WORD: u16 = 32;

pub struct Routes(Box<[AtomicU64]>);

impl Default for Routes {
    fn default() -> Routes {
        let all_look = LOOK * (u64::MAX / 3);
        Routes((0..SLOTS / PER_WORD).map(|_| AtomicU64::new(all_look)).collect())
    }
}

impl Routes {
    #[inline]
    pub fn is_own(&self, slot: u16) -> bool {
        self.get(slot) == OWN
    }

    #[inline]
    pub fn is_readable(&self, slot: u16) -> bool {
        self.get(slot) <= READABLE
    }

    #[inline]
    fn get(&self, slot: u16) -> u64 {
        let word = self.0.get(usize::from(slot / PER_WORD)).map_or(u64::MAX, |at| at.load(Relaxed));
        word >> (2 * (slot % PER_WORD)) & 3
    }

    /// Whether these would be others than there are.
    pub fn differ(&self, cluster: &Cluster, held: &SlotSet) -> bool {
        self.0.iter().zip(words(cluster, held)).any(|(word, new)| word.load(Relaxed) != new)
    }

    /// Takes over what the state says; with the gate closed.
    pub fn publish(&self, cluster: &Cluster, held: &SlotSet) {
        self.0.iter().zip(words(cluster, held)).for_each(|(word, new)| word.store(new, Relaxed));
    }
}

/// What stands of 32 slots in a word.
fn words<'a>(cluster: &'a Cluster, held: &'a SlotSet) -> impl Iterator<Item = u64> + 'a {
    let route = route_of(cluster, held);
    (0..SLOTS / PER_WORD)
        .map(move |word| (0..PER_WORD).map(|bit| route(word * PER_WORD + bit) << (2 * bit)).sum())
}

/// `held`: slots that are being handed over, whose calls are put off.
fn route_of<'a>(cluster: &'a Cluster, held: &'a SlotSet) -> impl Fn(u16) -> u64 + 'a {
    let (is_ok, primary) = (cluster.is_ok(), cluster.my_primary().id);
    move |slot| match cluster.place(slot) {
        _ if !is_ok || held.contains(slot) => LOOK,
        Place::Mine => OWN,
        Place::Elsewhere(owner) if owner == primary => READABLE,
        Place::Migrating(_) | Place::Importing(_) => MOVES,
        _ => LOOK,
    }
}
