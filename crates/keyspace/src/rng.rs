//! A small random generator whose state is part of a call's context.

use std::collections::BTreeSet;

/// xorshift64*, after Vigna, "An experimental exploration of Marsaglia's xorshift generators".
pub struct Rng(u64);

impl Default for Rng {
    fn default() -> Rng {
        Rng::new(1)
    }
}

impl Rng {
    pub fn new(seed: u64) -> Rng {
        Rng(seed | 1)
    }

    /// 64 random bits.
    pub fn draw(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d)
    }

    /// `count` of the items in any order, or all as they are if there are no more.
    pub fn some_of<T>(&mut self, mut items: Vec<T>, count: usize) -> Vec<T> {
        let len = items.len();
        if count < len {
            // Fisher and Yates, stopped when enough are drawn.
            for index in 0..count {
                items.swap(index, index + self.below(len - index));
            }
            items.truncate(count);
        }
        items
    }

    /// `count` items of those that `draw` draws, no two with the same `id`. Worth it where there
    /// are several times as many: few are drawn twice.
    pub fn distinct<T, I: Ord>(
        &mut self,
        count: usize,
        mut draw: impl FnMut(&mut Rng) -> T,
        id: impl Fn(&T) -> I,
    ) -> Vec<T> {
        let (mut drawn, mut seen) = (Vec::with_capacity(count), BTreeSet::new());
        while drawn.len() < count {
            let item = draw(self);
            if seen.insert(id(&item)) {
                drawn.push(item);
            }
        }
        drawn
    }

    /// A number below `bound`, which is not 0. The bias is below 2^-32 for any size of a keyspace.
    pub fn below(&mut self, bound: usize) -> usize {
        ((self.draw() as u128 * bound as u128) >> 64) as usize
    }
}
