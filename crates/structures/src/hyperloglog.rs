//! HyperLogLog: an estimate of how many different elements were seen, in at most 12 KiB.
//!
//! Each element is hashed to one of 16,384 registers and to a rank, the number of zeros at the end
//! of the rest of its hash, plus one; a register keeps the highest rank. The value is a plain
//! string that clients may copy between servers, so its bytes are Redis's:
//!
//! | Offset | Size | Field |
//! |---|---|---|
//! | 0 | 4 | `HYLL` |
//! | 4 | 1 | encoding: 0 dense, 1 sparse |
//! | 5 | 3 | unused, 0 |
//! | 8 | 8 | the estimate when it was last asked for, little endian; bit 63: out of date |
//! | 16 | | registers: `dense`, `sparse` |
//!
//! Bytes may come from clients: everything behind the header is untrusted, and what cannot be read
//! is [`Corrupted`].

mod dense;
mod estimate;
mod sparse;

use estimate::{Histogram, estimate};
pub use sparse::{Run, runs};

pub const REGISTERS: usize = 1 << INDEX_BITS;
const INDEX_BITS: u32 = 14;
/// Bits of a hash that make the rank.
const RANK_BITS: u32 = 64 - INDEX_BITS;
const HASH_SEED: u64 = 0xadc8_3b19;

const MAGIC: &[u8; 4] = b"HYLL";
const ENCODING_AT: usize = 4;
const ESTIMATE_AT: usize = 8;
const STALE: u64 = 1 << 63;
const HEADER_BYTES: usize = 16;

/// The registers cannot be read.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Corrupted;

/// How registers are kept.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub enum Encoding {
    Dense = 0,
    Sparse = 1,
}

/// The encoding of a HyperLogLog; `None` if these bytes are none.
#[inline]
pub fn encoding(bytes: &[u8]) -> Option<Encoding> {
    if bytes.len() < HEADER_BYTES || !bytes.starts_with(MAGIC) {
        return None;
    }
    match bytes[ENCODING_AT] {
        0 if bytes.len() == HEADER_BYTES + dense::BYTES => Some(Encoding::Dense),
        1 => Some(Encoding::Sparse),
        _ => None,
    }
}

/// A HyperLogLog that has seen nothing: sparse, 18 bytes.
pub fn empty() -> Vec<u8> {
    let mut bytes = Vec::with_capacity(32);
    bytes.extend_from_slice(MAGIC);
    bytes.push(Encoding::Sparse as u8);
    bytes.resize(HEADER_BYTES, 0);
    bytes.extend_from_slice(&sparse::EMPTY);
    bytes
}

/// What an element does: it raises a register to a rank.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Mark {
    /// Below [`REGISTERS`].
    pub index: usize,
    /// 1 to 51.
    pub rank: u8,
}

impl Mark {
    #[inline]
    pub fn of(element: &[u8]) -> Mark {
        let hash = murmur_64a(element, HASH_SEED);
        let rest = hash >> INDEX_BITS | 1 << RANK_BITS;
        let index = hash as usize & (REGISTERS - 1);
        Mark { index, rank: rest.trailing_zeros() as u8 + 1 }
    }
}

/// Whether the register is as high already. `bytes` is a HyperLogLog, here and below.
#[inline]
pub fn has(bytes: &[u8], mark: Mark) -> Result<bool, Corrupted> {
    let registers = &bytes[HEADER_BYTES..];
    let rank = match bytes[ENCODING_AT] {
        0 => dense::get(registers, mark.index),
        _ => sparse::get(registers, mark.index)?,
    };
    Ok(rank >= mark.rank)
}

/// Raises a register of a dense HyperLogLog in place.
#[inline]
pub fn raise_dense(bytes: &mut [u8], mark: Mark) {
    let registers = &mut bytes[HEADER_BYTES..];
    if dense::get(registers, mark.index) < mark.rank {
        dense::set(registers, mark.index, mark.rank);
    }
}

/// Raises a register; a sparse HyperLogLog that would take more than `sparse_bytes_max` becomes
/// dense. If this fails nothing was changed.
pub fn raise(bytes: &mut Vec<u8>, mark: Mark, sparse_bytes_max: usize) -> Result<(), Corrupted> {
    if encoding(bytes) == Some(Encoding::Sparse) {
        if sparse::raise(bytes, mark, sparse_bytes_max)? {
            return Ok(());
        }
        make_dense(bytes)?;
    }
    raise_dense(bytes, mark);
    Ok(())
}

/// Makes a sparse HyperLogLog dense.
pub fn make_dense(bytes: &mut Vec<u8>) -> Result<(), Corrupted> {
    if encoding(bytes) == Some(Encoding::Dense) {
        return Ok(());
    }
    let mut registers = Registers::new();
    registers.merge(bytes)?;
    bytes.resize(HEADER_BYTES + dense::BYTES, 0);
    bytes[ENCODING_AT] = Encoding::Dense as u8;
    dense::pack(&registers.0, &mut bytes[HEADER_BYTES..]);
    Ok(())
}

/// The estimate that stands in the header, unless it is out of date.
pub fn kept_estimate(bytes: &[u8]) -> Option<u64> {
    let field = &bytes[ESTIMATE_AT..HEADER_BYTES];
    let kept = u64::from_le_bytes(field.try_into().expect("eight bytes"));
    (kept & STALE == 0).then_some(kept)
}

pub fn keep_estimate(bytes: &mut [u8], estimate: u64) {
    bytes[ESTIMATE_AT..HEADER_BYTES].copy_from_slice(&estimate.to_le_bytes());
}

/// Notes that the kept estimate is out of date.
pub fn forget_estimate(bytes: &mut [u8]) {
    bytes[HEADER_BYTES - 1] |= (STALE >> 56) as u8;
}

/// Estimates anew how many different elements were seen.
pub fn count(bytes: &[u8]) -> Result<u64, Corrupted> {
    let registers = &bytes[HEADER_BYTES..];
    let histogram = match bytes[ENCODING_AT] {
        0 => dense::histogram(registers),
        _ => sparse::histogram(registers)?,
    };
    Ok(estimate(&histogram))
}

/// Registers unpacked, a byte each: the union of any number of HyperLogLogs.
pub struct Registers(Box<[u8; REGISTERS]>);

impl Default for Registers {
    fn default() -> Registers {
        Registers::new()
    }
}

impl Registers {
    pub fn new() -> Registers {
        Registers(Box::new([0; REGISTERS]))
    }

    /// Takes in what a HyperLogLog has seen.
    pub fn merge(&mut self, bytes: &[u8]) -> Result<(), Corrupted> {
        let registers = &bytes[HEADER_BYTES..];
        match bytes[ENCODING_AT] {
            0 => dense::merge(registers, &mut self.0),
            _ => sparse::merge(registers, &mut self.0)?,
        }
        Ok(())
    }

    pub fn count(&self) -> u64 {
        let mut histogram: Histogram = [0; 64];
        self.0.iter().for_each(|rank| histogram[usize::from(rank & 63)] += 1);
        estimate(&histogram)
    }

    pub fn ranks(&self) -> &[u8; REGISTERS] {
        &self.0
    }

    /// What the registers say, without those that are 0.
    pub fn marks(&self) -> impl Iterator<Item = Mark> {
        let marks = self.0.iter().enumerate().map(|(index, rank)| Mark { index, rank: *rank });
        marks.filter(|mark| mark.rank > 0)
    }
}

/// MurmurHash64A by Austin Appleby, on little-endian words on any machine.
#[inline]
fn murmur_64a(bytes: &[u8], seed: u64) -> u64 {
    const M: u64 = 0xc6a4_a793_5bd1_e995;
    let mix = |hash: u64, word: u64| (hash ^ word).wrapping_mul(M);
    let mut hash = seed ^ (bytes.len() as u64).wrapping_mul(M);
    let (words, rest) = bytes.as_chunks::<8>();
    for word in words {
        let word = u64::from_le_bytes(*word).wrapping_mul(M);
        hash = mix(hash, (word ^ word >> 47).wrapping_mul(M));
    }
    if !rest.is_empty() {
        let mut word = [0; 8];
        word[..rest.len()].copy_from_slice(rest);
        hash = mix(hash, u64::from_le_bytes(word));
    }
    hash = (hash ^ hash >> 47).wrapping_mul(M);
    hash ^ hash >> 47
}

#[cfg(test)]
mod tests;
