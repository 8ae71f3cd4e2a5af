//! Sums of facts, by what they have in common: exact for every row there is room for.

use std::collections::HashMap;

use crate::budget::Share;
use crate::report::answer::{Large, Sums};
use crate::report::by::{By, life};
use crate::report::facts::{Fact, NAME_MAX};

/// More rows than these nobody looks at; keys whose row would be another are summed up as one.
pub const ROWS_MAX: usize = 1 << 16;
/// Of each row the largest keys.
const LARGE_PER_ROW: usize = 3;
/// What a row takes, its largest keys included.
const ROW_BYTES: usize = size_of::<Sums>() + LARGE_PER_ROW * LARGE_BYTES + 128;
/// What a large key takes.
pub const LARGE_BYTES: usize = size_of::<Large>() + NAME_MAX;

/// The number of the row for those that have none of their own.
const REST: usize = usize::MAX;

pub struct Table {
    by: By,
    numbers: HashMap<Box<[u8]>, usize>,
    rows: Vec<Sums>,
    /// Keys whose row there was no room for.
    pub rest: Sums,
    pub total: Sums,
    top: usize,
    /// The largest of all keys.
    pub largest: Vec<Large>,
    /// Strings to be compressed, and their rows.
    samples: Vec<(usize, Vec<u8>)>,
    sample_bytes: usize,
}

/// More strings than these do not wait to be compressed.
const SAMPLE_BYTES_MAX: usize = 4 << 20;

impl Table {
    /// With so many of the largest keys; room for them was taken.
    pub fn new(by: By, top: usize) -> Table {
        Table {
            by,
            numbers: HashMap::new(),
            rows: Vec::new(),
            rest: Sums::default(),
            total: Sums::default(),
            top,
            largest: Vec::new(),
            samples: Vec::new(),
            sample_bytes: 0,
        }
    }

    pub fn add(&mut self, fact: Fact, name: &[u8], sample: Option<Vec<u8>>, share: &Share) {
        let row = self.row_of(&fact, name, share);
        self.total.add(&fact);
        let sums = match row {
            REST => &mut self.rest,
            row => &mut self.rows[row],
        };
        sums.add(&fact);
        keep_large(&mut sums.largest, LARGE_PER_ROW, &fact, name);
        keep_large(&mut self.largest, self.top, &fact, name);
        if let Some(text) = sample.filter(|_| self.sample_bytes < SAMPLE_BYTES_MAX) {
            self.sample_bytes += text.len();
            self.samples.push((row, text));
        }
    }

    /// The number of a fact's row.
    fn row_of(&mut self, fact: &Fact, name: &[u8], share: &Share) -> usize {
        let slot;
        let row_name = match &self.by {
            By::Prefix { .. } => &name[..usize::from(fact.prefix_len)],
            By::Type => fact.kind.as_bytes(),
            By::Ttl => life(fact.ttl_ms).as_bytes(),
            By::Encoding => fact.encoding.as_bytes(),
            By::Slot => {
                slot = fact.slot.to_string();
                slot.as_bytes()
            }
        };
        if let Some(number) = self.numbers.get(row_name) {
            return *number;
        }
        let number = self.rows.len();
        if number == ROWS_MAX || !share.take(ROW_BYTES + row_name.len()) {
            return REST;
        }
        self.numbers.insert(row_name.into(), number);
        self.rows.push(Sums::default());
        number
    }

    pub fn take_samples(&mut self) -> Vec<(usize, Vec<u8>)> {
        self.sample_bytes = 0;
        std::mem::take(&mut self.samples)
    }

    /// Notes what compressing a sample of so many bytes has saved.
    pub fn note_saving(&mut self, row: usize, sampled: u64, saved: u64) {
        let row = match row {
            REST => &mut self.rest,
            row => &mut self.rows[row],
        };
        for sums in [row, &mut self.total] {
            sums.sampled_bytes += sampled;
            sums.sampled_saved += saved;
        }
    }

    /// All rows with their names, and what compression would save of each.
    pub fn take_rows(&mut self) -> Vec<(Vec<u8>, Sums)> {
        let of_all = self.total.samples();
        for sums in self.rows.iter_mut().chain([&mut self.rest, &mut self.total]) {
            sums.estimate(of_all);
        }
        let mut rows = std::mem::take(&mut self.rows);
        let numbers = std::mem::take(&mut self.numbers).into_iter();
        numbers.map(|(name, number)| (name.into(), std::mem::take(&mut rows[number]))).collect()
    }
}

/// Keeps a key if it is among the largest, in order; of equal ones those that came first.
fn keep_large(largest: &mut Vec<Large>, most: usize, fact: &Fact, name: &[u8]) {
    let is_full = largest.len() >= most;
    if most == 0 || is_full && largest.last().is_some_and(|last| last.bytes >= fact.bytes) {
        return;
    }
    if is_full {
        largest.pop();
    }
    let at = largest.partition_point(|large| large.bytes >= fact.bytes);
    largest.insert(at, Large::of(fact, name));
}
