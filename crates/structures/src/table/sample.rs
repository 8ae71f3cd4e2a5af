//! Records of a table by chance, for eviction.

use super::{Fraction, RecordRef, Table};
use crate::bucket::WIDTH;

/// How a sample is taken.
#[derive(Clone, Copy, Debug)]
pub struct Sample {
    /// Where it starts: 64 random bits.
    pub start: u64,
    /// Records at most.
    pub most: usize,
    /// Buckets to look at, at most.
    pub buckets_max: usize,
    /// Only records that expire, or have parts that do.
    pub is_volatile: bool,
}

impl<T> Table<T> {
    /// Calls `f` with some records that stand side by side: each record of the table is as likely
    /// as any other to be among them, but for the unevenness of hashing.
    pub fn sample<'a>(&'a self, sample: Sample, mut f: impl FnMut(RecordRef<'a, T>)) {
        let Some(leaf) = self.leaf(sample.start) else { return };
        // SAFETY: the leaf is live while the table is borrowed.
        let buckets = unsafe { leaf.buckets() };
        let home = Fraction::of(sample.start).home(buckets.len());
        // The lowest bits choose no bucket.
        let first = home * WIDTH + (((sample.start & 0xffff) as usize * WIDTH) >> 16);
        let places = WIDTH * buckets.len().min(sample.buckets_max);
        let mut left = sample.most;
        for place in first..first + places {
            let bucket = &buckets[place / WIDTH % buckets.len()];
            let Some(entry) = bucket.present(place % WIDTH) else { continue };
            if sample.is_volatile && !entry.is_volatile() {
                continue;
            }
            if left == 0 {
                return;
            }
            left -= 1;
            // SAFETY: the table owns the record and is borrowed.
            f(unsafe { RecordRef::from_pointer(entry.record()) });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::directory::Immediately;
    use crate::hash;
    use crate::record::{NewBody, Record};

    fn table_of(count: u32) -> Table<()> {
        let mut table = Table::new();
        for key in (0..count).map(u32::to_le_bytes) {
            let expiry_ms = (key[0] % 4 == 0).then_some(1);
            let record = Record::new(&key, 0, NewBody::Bytes(b""), expiry_ms);
            table.insert(hash::of(&key), record, &Immediately);
        }
        table
    }

    fn draws() -> impl Iterator<Item = u64> {
        (1u64..).map(|number| hash::of(&number.to_le_bytes()))
    }

    #[test]
    fn every_record_is_drawn_about_equally_often() {
        for count in [1, 5, 60, 20_000] {
            let table = table_of(count);
            let mut seen = vec![0u32; count as usize];
            let wanted = 40 * count as usize;
            let mut drawn = 0;
            for start in draws() {
                let sample = Sample { start, most: 5, buckets_max: 4, is_volatile: false };
                table.sample(sample, |record| {
                    seen[u32::from_le_bytes(record.key().try_into().unwrap()) as usize] += 1;
                    drawn += 1;
                });
                if drawn >= wanted {
                    break;
                }
            }
            let rare = seen.iter().filter(|times| **times < 10).count();
            assert!(rare * 100 <= seen.len(), "{rare} of {count} were hardly drawn");
        }
    }

    #[test]
    fn a_volatile_sample_has_nothing_else() {
        let table = table_of(1000);
        let mut count = 0;
        for start in draws().take(100) {
            let sample = Sample { start, most: 3, buckets_max: 16, is_volatile: true };
            let mut of_this = 0;
            table.sample(sample, |record| {
                assert!(record.expiry_ms().is_some());
                of_this += 1;
            });
            assert!(of_this <= 3);
            count += of_this;
        }
        assert!(count > 250, "{count}");
        let sample = Sample { start: 0, most: 3, buckets_max: 16, is_volatile: false };
        Table::<()>::new().sample(sample, |_| panic!("nothing is there"));
    }
}
