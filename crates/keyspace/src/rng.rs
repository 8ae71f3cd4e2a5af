//! A small random generator whose state is part of a call's context.

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

    /// A number below `bound`, which is not 0. The bias is below 2^-32 for any size of a keyspace.
    pub fn below(&mut self, bound: usize) -> usize {
        ((self.draw() as u128 * bound as u128) >> 64) as usize
    }
}
