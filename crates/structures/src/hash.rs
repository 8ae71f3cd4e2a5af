//! The hash of keys and fields: XXH3, seeded once per process.
//!
//! The seed makes collisions unpredictable for those who choose keys. It is process-wide because
//! tables must rehash keys on their own when they split, and because no result that a client can
//! see (replies, order of SCAN aside) may depend on it.

use core::sync::atomic::{AtomicU64, Ordering};

use xxhash_rust::xxh3::{xxh3_64, xxh3_64_with_seed};

static SEED: AtomicU64 = AtomicU64::new(0x6b76_6173_6972);

/// Sets the seed; only before the first table is filled.
pub fn set_seed(seed: u64) {
    SEED.store(seed, Ordering::Relaxed);
}

/// The hash without a seed, the same everywhere: what clients may be told, and compute themselves.
pub fn digest(bytes: &[u8]) -> u64 {
    xxh3_64(bytes)
}

#[inline]
pub fn of(key: &[u8]) -> u64 {
    xxh3_64_with_seed(key, SEED.load(Ordering::Relaxed))
}
