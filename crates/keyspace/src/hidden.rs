//! Slots whose keys nobody is to see, expire or evict: in a cluster, those that are on their way
//! here, and what is left of those that have gone.
//!
//! Calls that name a key never come to one of these; this is for those that look at all keys. The
//! set changes with the gate closed.

use std::sync::atomic::Ordering::Relaxed;
use std::sync::atomic::{AtomicBool, AtomicU64};

use kvasir_structures::slot::SLOTS;

pub struct Hidden {
    is_any: AtomicBool,
    bits: Box<[AtomicU64]>,
}

impl Default for Hidden {
    fn default() -> Hidden {
        let bits = (0..SLOTS / 64).map(|_| AtomicU64::new(0)).collect();
        Hidden { is_any: AtomicBool::new(false), bits }
    }
}

impl Hidden {
    #[inline]
    pub fn is_any(&self) -> bool {
        self.is_any.load(Relaxed)
    }

    #[inline]
    pub fn has(&self, slot: u16) -> bool {
        self.is_any() && self.bits[usize::from(slot / 64)].load(Relaxed) & (1 << (slot % 64)) != 0
    }

    /// Hides these and no others.
    pub fn set(&self, slots: impl Iterator<Item = u16>) {
        let mut words = vec![0_u64; self.bits.len()];
        slots.for_each(|slot| words[usize::from(slot / 64)] |= 1 << (slot % 64));
        self.is_any.store(words.iter().any(|word| *word != 0), Relaxed);
        self.bits.iter().zip(words).for_each(|(bits, word)| bits.store(word, Relaxed));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slots_are_hidden_until_others_are() {
        let hidden = Hidden::default();
        assert!(!hidden.is_any() && !hidden.has(0));
        hidden.set([0, 63, 64, 16383].into_iter());
        let all: Vec<u16> = (0..SLOTS as u16).filter(|slot| hidden.has(*slot)).collect();
        assert_eq!(all, [0, 63, 64, 16383]);
        hidden.set(std::iter::empty());
        assert!(!hidden.is_any() && !hidden.has(63));
    }
}
