//! Walking over all keys to move records out of memory pages that hold few others.
//!
//! A slot is locked for some buckets at a time; the caller spreads the walk over time. What stands
//! beside its record, a large collection or a long string, is not moved.

use kvasir_structures::gate::Pass;
use kvasir_structures::slot::SLOTS;
use kvasir_structures::table::{Moves, Position};

use crate::database::Keyspace;
use crate::place::DbIndex;

/// Buckets, of seven keys at most, that are visited under one lock.
const BUCKETS_PER_LOCK: usize = 8;

/// Where a walk stands.
#[derive(Clone, Copy, Default)]
pub struct Defragmenter {
    db: u16,
    slot: u16,
    position: Position,
}

impl Defragmenter {
    /// Visits some buckets of the next slot that has keys; says what was done there, or `None` at
    /// the end, where the next walk begins.
    pub fn step(&mut self, keyspace: &Keyspace, pass: &Pass<'_>) -> Option<Moves> {
        if !self.seek(keyspace, pass) {
            *self = Defragmenter::default();
            return None;
        }
        let slot = keyspace.database(DbIndex(self.db), pass).slot(self.slot);
        let mut moves = Moves::default();
        // Whoever holds it for long is not waited for: the next walk comes here again.
        let guard = slot.lock_unless(pass, || keyspace.busy.is_busy());
        let mut position = guard.is_some().then_some(self.position);
        if let Some(mut guard) = guard {
            for _ in 0..BUCKETS_PER_LOCK {
                let Some(from) = position else { break };
                let (next, some) = guard.defragment(from);
                moves += some;
                position = Some(next).filter(|next| *next != Position(0));
            }
        }
        match position {
            Some(position) => self.position = position,
            None => self.next_slot(),
        }
        Some(moves)
    }

    fn next_slot(&mut self) {
        (self.slot, self.position) = (self.slot + 1, Position(0));
    }

    /// Goes on to a slot that has keys; false if there is none any more.
    fn seek(&mut self, keyspace: &Keyspace, pass: &Pass<'_>) -> bool {
        while self.db < keyspace.database_count() {
            let database = keyspace.database(DbIndex(self.db), pass);
            let slots = if database.was_used() { &database.slots()[..] } else { &[] };
            let from = usize::from(self.slot);
            let found = slots.iter().skip(from).position(|slot| !slot.is_empty());
            if let Some(behind) = found {
                if behind > 0 {
                    (self.slot, self.position) = (self.slot + behind as u16, Position(0));
                }
                return true;
            }
            *self = Defragmenter { db: self.db + 1, ..Defragmenter::default() };
        }
        false
    }
}

const _: () = assert!(SLOTS < u16::MAX as usize);

#[cfg(test)]
mod tests {
    use kvasir_resp::reply::Protocol;

    use super::*;
    use crate::testing::{Bench, split};

    #[test]
    fn a_walk_sees_every_key_once() {
        let mut bench = Bench::new(Protocol::Resp2);
        let mut defragmenter = Defragmenter::default();
        for (db, keys) in [(0, 3000), (3, 70)] {
            bench.call(split(&format!("SELECT {db}"))[0].as_args());
            for key in 0..keys {
                bench.call(split(&format!("SET k{key} v"))[0].as_args());
                bench.call(split(&format!("RPUSH {{tag}}{key} v"))[0].as_args());
            }
        }
        for _ in 0..2 {
            let steps = std::iter::from_fn(|| bench.defragment(&mut defragmenter));
            assert_eq!(steps.map(|moves| moves.seen).sum::<u64>(), 2 * 3070);
        }
    }
}
