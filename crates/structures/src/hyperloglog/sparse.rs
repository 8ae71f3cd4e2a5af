//! Registers by runs of equal rank, in the order of registers; all runs together cover all.
//!
//! | Byte | Second byte | Run |
//! |---|---|---|
//! | `00llllll` | | l + 1 registers of rank 0 |
//! | `01llllll` | `llllllll` | l + 1 registers of rank 0, up to 16,384; high bits first |
//! | `1rrrrrll` | | l + 1 registers of rank r + 1 |
//!
//! Which of several ways to write the same registers is taken follows Redis: clients compare the
//! bytes.

use core::iter;

use super::estimate::Histogram;
use super::{Corrupted, HEADER_BYTES, Mark, REGISTERS};

/// One run of all registers.
pub const EMPTY: [u8; 2] = [0x7f, 0xff];

const RANKED: u8 = 0x80;
const LONG: u8 = 0x40;
/// The longest run of zeros in one byte.
const SHORT_MAX: usize = 64;
/// The highest rank of a run.
const RANK_MAX: u8 = 32;
/// The longest run of a rank other than 0.
const RANKED_MAX: usize = 4;
/// How many runs are looked at after a change for neighbours of the same rank.
const MERGE_RUNS: usize = 5;

/// Registers that follow each other.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Run {
    pub rank: u8,
    pub len: usize,
    /// Whether it is written in two bytes.
    pub is_long: bool,
}

impl Run {
    fn size(self) -> usize {
        1 + usize::from(self.is_long)
    }

    /// The run that `bytes` begin with.
    #[inline]
    fn first_of(bytes: &[u8]) -> Option<Run> {
        let first = *bytes.first()?;
        let low = usize::from(first & 0x3f);
        Some(if first & RANKED != 0 {
            Run { rank: (first >> 2 & 0x1f) + 1, len: (low & 3) + 1, is_long: false }
        } else if first & LONG != 0 {
            let len = (low << 8 | usize::from(*bytes.get(1)?)) + 1;
            Run { rank: 0, len, is_long: true }
        } else {
            Run { rank: 0, len: low + 1, is_long: false }
        })
    }
}

/// The runs of a sparse HyperLogLog as they are written, up to what is no run.
pub fn runs(bytes: &[u8]) -> impl Iterator<Item = Run> {
    runs_of(&bytes[HEADER_BYTES..])
}

fn runs_of(mut registers: &[u8]) -> impl Iterator<Item = Run> {
    iter::from_fn(move || {
        let run = Run::first_of(registers)?;
        registers = &registers[run.size()..];
        Some(run)
    })
}

/// Where the run that covers a register stands.
struct Place {
    /// The byte at which the run before it stands, or its own if it is the first.
    before: usize,
    at: usize,
    run: Run,
    /// Its first register.
    first: usize,
}

/// One pass over bytes; nearly all of the time of an addition. The step to the next run is computed
/// without a branch: whether a run is long cannot be predicted.
#[inline]
fn locate(registers: &[u8], index: usize) -> Result<Place, Corrupted> {
    let (mut before, mut at, mut first) = (0, 0, 0);
    while let Some(&byte) = registers.get(at) {
        let second = registers.get(at + 1).copied().unwrap_or(0);
        let is_long = usize::from(byte & (RANKED | LONG) == LONG);
        let short_mask = if byte & RANKED != 0 { 3 } else { 0x3f };
        let short = usize::from(byte & short_mask);
        let long = short << 8 | usize::from(second);
        let end = first + 1 + if is_long != 0 { long } else { short };
        if index < end {
            let run = Run::first_of(&registers[at..]).ok_or(Corrupted)?;
            return Ok(Place { before, at, run, first });
        }
        (before, at, first) = (at, at + 1 + is_long, end);
    }
    Err(Corrupted)
}

#[inline]
pub fn get(registers: &[u8], index: usize) -> Result<u8, Corrupted> {
    locate(registers, index).map(|place| place.run.rank)
}

/// Raises a register of a whole HyperLogLog; says false, and does nothing, if the rank cannot be
/// written here or the result would take more than `bytes_max`.
pub fn raise(bytes: &mut Vec<u8>, mark: Mark, bytes_max: usize) -> Result<bool, Corrupted> {
    if mark.rank > RANK_MAX {
        return Ok(false);
    }
    let Place { before, at, run, first } = locate(&bytes[HEADER_BYTES..], mark.index)?;
    if run.rank >= mark.rank {
        return Ok(true);
    }
    let mut pieces = Pieces::default();
    pieces.push(run.rank, mark.index - first);
    pieces.push(mark.rank, 1);
    pieces.push(run.rank, first + run.len - 1 - mark.index);
    let len = bytes.len() - run.size() + pieces.len;
    if len > bytes.len() && len > bytes_max {
        return Ok(false);
    }
    let at = HEADER_BYTES + at;
    bytes.splice(at..at + run.size(), pieces.bytes[..pieces.len].iter().copied());
    join_from(bytes, HEADER_BYTES + before);
    Ok(true)
}

/// What takes the place of a run: up to three runs.
#[derive(Default)]
struct Pieces {
    bytes: [u8; 5],
    len: usize,
}

impl Pieces {
    /// Adds a run, if it is not empty.
    fn push(&mut self, rank: u8, len: usize) {
        let last = len.wrapping_sub(1);
        match rank {
            _ if len == 0 => {}
            0 if len > SHORT_MAX => {
                self.push_byte(LONG | (last >> 8) as u8);
                self.push_byte(last as u8);
            }
            0 => self.push_byte(last as u8),
            rank => self.push_byte(ranked(rank, len)),
        }
    }

    fn push_byte(&mut self, byte: u8) {
        self.bytes[self.len] = byte;
        self.len += 1;
    }
}

fn ranked(rank: u8, len: usize) -> u8 {
    debug_assert!((1..=RANK_MAX).contains(&rank) && (1..=RANKED_MAX).contains(&len));
    RANKED | (rank - 1) << 2 | (len - 1) as u8
}

/// Joins neighbours of the same rank, other than 0, within a few runs from `at` on.
fn join_from(bytes: &mut Vec<u8>, mut at: usize) {
    for _ in 0..MERGE_RUNS {
        let Some(run) = bytes.get(at..).and_then(Run::first_of) else { return };
        let next = Run::first_of(&bytes[at + run.size()..]);
        match next {
            Some(next)
                if run.rank > 0 && next.rank == run.rank && run.len + next.len <= RANKED_MAX =>
            {
                bytes[at] = ranked(run.rank, run.len + next.len);
                bytes.remove(at + 1);
            }
            _ => at += run.size(),
        }
    }
}

pub fn histogram(registers: &[u8]) -> Result<Histogram, Corrupted> {
    let (mut histogram, mut covered): (Histogram, usize) = ([0; 64], 0);
    for run in runs_of(registers) {
        covered += run.len;
        if covered > REGISTERS {
            return Err(Corrupted);
        }
        histogram[usize::from(run.rank)] += run.len as u32;
    }
    if covered == REGISTERS { Ok(histogram) } else { Err(Corrupted) }
}

/// Raises every one of `ranks` to what the registers say.
pub fn merge(registers: &[u8], ranks: &mut [u8; REGISTERS]) -> Result<(), Corrupted> {
    let mut covered = 0;
    for run in runs_of(registers) {
        let run_ranks = ranks.get_mut(covered..covered + run.len).ok_or(Corrupted)?;
        run_ranks.iter_mut().for_each(|rank| *rank = run.rank.max(*rank));
        covered += run.len;
    }
    if covered == REGISTERS { Ok(()) } else { Err(Corrupted) }
}
