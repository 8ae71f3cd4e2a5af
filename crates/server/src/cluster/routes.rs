//! For each slot one word: whether a call about it may run here without a further look.
//!
//! Words change with the gate closed, so what a call is told inside the gate is true until it
//! leaves. Whatever is not the usual case is looked up in the state machine.

use std::sync::atomic::AtomicU8;
use std::sync::atomic::Ordering::Relaxed;

use kvasir_cluster::slots::{SLOTS, SlotSet};
use kvasir_cluster::state::Cluster;
use kvasir_cluster::view::Place;

/// A slot is this node's, and nothing is the matter with it.
const OWN: u8 = 0;
/// It is this node's primary's: who wants no more than to read, and has said so, may.
const READABLE: u8 = 1;
const LOOK: u8 = 2;
/// It is on its way: looked up as well, but its arrival is a change that clients have to hear of.
const MOVES: u8 = 3;

pub struct Routes(Box<[AtomicU8]>);

impl Default for Routes {
    fn default() -> Routes {
        Routes((0..SLOTS).map(|_| AtomicU8::new(LOOK)).collect())
    }
}

impl Routes {
    #[inline]
    pub fn is_own(&self, slot: u16) -> bool {
        self.0.get(usize::from(slot)).is_some_and(|word| word.load(Relaxed) == OWN)
    }

    #[inline]
    pub fn is_readable(&self, slot: u16) -> bool {
        self.0.get(usize::from(slot)).is_some_and(|word| word.load(Relaxed) <= READABLE)
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

/// `held`: slots that are being handed over, whose calls are put off.
fn words<'a>(cluster: &'a Cluster, held: &'a SlotSet) -> impl Iterator<Item = u8> + 'a {
    let (is_ok, primary) = (cluster.is_ok(), cluster.my_primary().id);
    (0..SLOTS).map(move |slot| match cluster.place(slot) {
        _ if !is_ok || held.contains(slot) => LOOK,
        Place::Mine => OWN,
        Place::Elsewhere(owner) if owner == primary => READABLE,
        Place::Migrating(_) | Place::Importing(_) => MOVES,
        _ => LOOK,
    })
}
