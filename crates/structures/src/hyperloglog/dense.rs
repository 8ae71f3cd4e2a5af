//! All registers, 6 bits each: the first one the lowest bits of the first byte.

use super::REGISTERS;
use super::estimate::Histogram;

const RANK_BITS: usize = 6;
const RANK_MASK: u8 = (1 << RANK_BITS) - 1;
pub const BYTES: usize = REGISTERS * RANK_BITS / 8;

/// The byte in which a register begins, and the bit.
#[inline]
fn place(index: usize) -> (usize, usize) {
    (index * RANK_BITS / 8, index * RANK_BITS % 8)
}

#[inline]
pub fn get(registers: &[u8], index: usize) -> u8 {
    let (byte, shift) = place(index);
    let high = registers.get(byte + 1).copied().unwrap_or(0);
    (u16::from_le_bytes([registers[byte], high]) >> shift) as u8 & RANK_MASK
}

#[inline]
pub fn set(registers: &mut [u8], index: usize, rank: u8) {
    let (byte, shift) = place(index);
    let [low_mask, high_mask] = (u16::from(RANK_MASK) << shift).to_le_bytes();
    let [low, high] = (u16::from(rank) << shift).to_le_bytes();
    registers[byte] = registers[byte] & !low_mask | low;
    if high_mask != 0 {
        registers[byte + 1] = registers[byte + 1] & !high_mask | high;
    }
}

/// Four registers from three bytes.
#[inline]
fn unpack([low, middle, high]: [u8; 3]) -> [u8; 4] {
    let word = u32::from_le_bytes([low, middle, high, 0]);
    [0, 6, 12, 18].map(|shift| (word >> shift) as u8 & RANK_MASK)
}

/// Raises every one of `ranks` to what the registers say.
pub fn merge(registers: &[u8], ranks: &mut [u8; REGISTERS]) {
    let fours = ranks.as_chunks_mut::<4>().0;
    for (packed, four) in registers.as_chunks::<3>().0.iter().zip(fours) {
        let unpacked = unpack(*packed);
        four.iter_mut().zip(unpacked).for_each(|(rank, other)| *rank = other.max(*rank));
    }
}

pub fn pack(ranks: &[u8; REGISTERS], registers: &mut [u8]) {
    let packed = registers.as_chunks_mut::<3>().0;
    for (packed, four) in packed.iter_mut().zip(ranks.as_chunks::<4>().0) {
        let [a, b, c, d] = four.map(u32::from);
        let [low, middle, high, _] = (a | b << 6 | c << 12 | d << 18).to_le_bytes();
        *packed = [low, middle, high];
    }
}

/// Neighbours are counted in four histograms, so that equal ones need not wait for each other.
pub fn histogram(registers: &[u8]) -> Histogram {
    let mut parts: [Histogram; 4] = [[0; 64]; 4];
    for packed in registers.as_chunks::<3>().0 {
        for (part, rank) in parts.iter_mut().zip(unpack(*packed)) {
            part[usize::from(rank)] += 1;
        }
    }
    core::array::from_fn(|rank| parts.iter().map(|part| part[rank]).sum())
}
