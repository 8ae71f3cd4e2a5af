//! How much each slot is used, by the same measures as keys, as far as noted calls tell.
//!
//! There are so few slots that each has its place: nothing is estimated but by the sample.

use kvasir_structures::slot::SLOTS;

use super::{Measure, Used};

/// What one slot was used for, by [`Measure`].
pub type Weights = [u64; Measure::ALL.len()];

/// The use of all slots.
pub struct Heat {
    slots: Box<[Weights]>,
}

impl Heat {
    pub fn new() -> Heat {
        Heat { slots: vec![[0; Measure::ALL.len()]; SLOTS].into() }
    }

    /// Bytes and time are shared out evenly, as among the keys.
    pub fn note(&mut self, nanos: u64, used: Used<'_>) {
        let count = (used.keys.len() as u64).max(1);
        for key in used.keys {
            let weights = &mut self.slots[usize::from(key.slot)];
            weights[used.use_of() as usize] += 1;
            weights[Measure::Bytes as usize] += used.bytes / count;
            weights[Measure::Time as usize] += nanos / count;
        }
    }

    /// Halves all so many times.
    pub fn halve(&mut self, times: u32) {
        for weight in self.slots.as_flattened_mut() {
            *weight = weight.checked_shr(times).unwrap_or(0);
        }
    }

    /// Adds what it has by these measures, so many times, to a sum for each slot.
    pub fn add_to(&self, sums: &mut [u64], by: &[Measure], times: u64) {
        for (sum, weights) in sums.iter_mut().zip(&self.slots) {
            *sum += times * by.iter().map(|measure| weights[*measure as usize]).sum::<u64>();
        }
    }

    pub fn allocated_bytes(&self) -> usize {
        size_of_val(&*self.slots)
    }
}
