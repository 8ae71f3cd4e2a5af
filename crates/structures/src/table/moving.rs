//! Moving a table's records to fuller pages, for defragmentation.

use super::{Fraction, Position, RecordRef, Table};
use crate::slab;

impl<T> Table<T> {
    /// Moves those records of one bucket that stand in pages with few others. Returns where the
    /// next call goes on, 0 at the end, and how many records were looked at and moved.
    pub fn defragment(&mut self, position: Position) -> (Position, Moves) {
        let mut moves = Moves::default();
        let hash = position.0 << 16;
        let Some(leaf) = self.leaf(hash) else { return (Position(0), moves) };
        // SAFETY: the leaf is live while the table is borrowed.
        let buckets = unsafe { leaf.buckets() };
        let home = Fraction::of(hash).home(buckets.len());
        // The bucket as it stands, with entries that belong to others: each is visited once.
        let bucket = &buckets[home];
        for place in bucket.positions() {
            let entry = bucket.entry(place);
            moves.seen += 1;
            // SAFETY: the table owns the record and is borrowed exclusively, so nobody else reads
            // or changes it; its only pointer is replaced before it is freed. A prefetch may still
            // touch the address, which reads nothing.
            unsafe {
                let size = RecordRef::<T>::from_pointer(entry.record()).size();
                let Some(copy) = slab::copy_to_fuller_page(entry.record(), size) else { continue };
                bucket.replace(place, entry.moved_to(copy));
                slab::deallocate(entry.record(), size);
            }
            moves.moved += 1;
        }
        (self.position_behind(position, home, buckets.len()), moves)
    }
}

/// What a step of defragmentation did.
#[derive(Clone, Copy, Default, Debug, PartialEq, Eq)]
pub struct Moves {
    pub seen: u64,
    pub moved: u64,
}

impl core::ops::AddAssign for Moves {
    fn add_assign(&mut self, other: Moves) {
        self.seen += other.seen;
        self.moved += other.moved;
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::directory::Immediately;
    use crate::hash;
    use crate::record::{NewBody, Record};

    fn key(number: u16) -> [u8; 2] {
        number.to_le_bytes()
    }

    fn value(number: u16) -> Vec<u8> {
        vec![number as u8; 40 * (1 + usize::from(number) % 60)]
    }

    /// A whole walk; returns what it did.
    fn walk(table: &mut Table<Box<u16>>) -> Moves {
        let (mut position, mut all) = (Position(0), Moves::default());
        loop {
            let (next, moves) = table.defragment(position);
            all += moves;
            position = next;
            if position == Position(0) {
                return all;
            }
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(24))]

        /// Whatever is kept of a table, in whatever order it went, walks change nothing that one
        /// can see, look at every record once, and end.
        #[test]
        fn moving_changes_nothing(
            count in 1u16..6000,
            kept_in in 1u16..40,
            with_objects in any::<bool>(),
        ) {
            let mut table = Table::<Box<u16>>::new();
            for number in 0..count {
                let object = with_objects && number % 3 == 0;
                let bytes = value(number);
                let body = match object {
                    true => NewBody::Object(Box::new(Box::new(number))),
                    false => NewBody::Bytes(&bytes),
                };
                let expiry_ms = (number % 5 == 0).then_some(7);
                let record = Record::new(&key(number), 1, body, expiry_ms);
                table.insert(hash::of(&key(number)), record, &Immediately);
            }
            for number in (0..count).filter(|number| number % kept_in != 0) {
                let found = table.find(hash::of(&key(number)), &key(number)).expect("it is there");
                drop(found.remove(&Immediately));
            }
            let (mut walks, mut moved) = (0, 1);
            while moved > 0 && walks < 100 {
                let moves = walk(&mut table);
                prop_assert_eq!(moves.seen, table.len() as u64);
                (walks, moved) = (walks + 1, moves.moved);
            }
            prop_assert_eq!(moved, 0, "{} walks", walks);
            prop_assert_eq!(table.len(), usize::from(count.div_ceil(kept_in)));
            for number in (0..count).step_by(usize::from(kept_in)) {
                let record = table.get(hash::of(&key(number)), &key(number)).expect("it is there");
                prop_assert_eq!(record.expiry_ms(), (number % 5 == 0).then_some(7));
                match record.body() {
                    crate::record::Body::Bytes(bytes) => prop_assert_eq!(bytes, value(number)),
                    crate::record::Body::Object(object) => prop_assert_eq!(**object, number),
                }
            }
        }
    }
}
