//! Replicas that went away over a whole snapshot, before they had said that they have it: as a
//! rule they can't read its form. Such a replica asks again at once, for ever; after the second
//! time it is told why instead, for a while.

use std::sync::Mutex;

use kvasir_keyspace::error::Error;
use kvasir_keyspace::serial::Version;
use kvasir_structures::locks::lock;

use crate::log::warning;

/// From so many on it is held off.
const REFUSED_MAX: u32 = 2;
/// For how long, in ms: its data, or it, may be another by then.
const HOLD_MS: u64 = 60_000;
/// Of how many replicas is kept what they did; the oldest go.
const KNOWN_MAX: usize = 64;

/// What replicas have done lately.
#[derive(Default)]
pub struct Refusals(Mutex<Vec<Refusal>>);

struct Refusal {
    /// Of the replica.
    name: String,
    version: Version,
    count: u32,
    last_ms: u64,
}

impl Refusals {
    /// A replica has gone over a snapshot of a version that not everybody reads.
    pub fn note(&self, name: &str, version: Version, now_ms: u64) {
        let mut known = lock(&self.0);
        let before = known.iter().position(|refusal| refusal.name == name);
        let before = before.map_or(0, |index| known.remove(index).count);
        if known.len() >= KNOWN_MAX {
            known.remove(0);
        }
        let count = before.saturating_add(1);
        known.push(Refusal { name: name.to_owned(), version, count, last_ms: now_ms });
        drop(known);
        if count >= REFUSED_MAX {
            warning!(
                "a replica went away over its snapshot again: can it read this form? It gets none \
                 for {} s. Hashes have fields that expire: Redis reads them from 7.4 on, Valkey \
                 from 9.0 on name={name} rdb_version={} times={count}",
                HOLD_MS / 1000,
                version.0
            );
        }
    }

    /// A replica has loaded its snapshot.
    pub fn forget(&self, name: &str) {
        lock(&self.0).retain(|refusal| refusal.name != name);
    }

    /// What a replica is told instead of a snapshot, if it is held off.
    pub fn check(&self, name: &str, now_ms: u64) -> Result<(), Error> {
        let known = lock(&self.0);
        let is_held = |refusal: &&Refusal| {
            let age_ms = now_ms.saturating_sub(refusal.last_ms);
            refusal.name == name && refusal.count >= REFUSED_MAX && age_ms < HOLD_MS
        };
        match known.iter().find(is_held) {
            None => Ok(()),
            Some(Refusal { version, count, .. }) => Err(Error::new(format!(
                "NOMASTERLINK This replica went away over {count} snapshots of RDB version {}: \
                 fields of hashes expire, can it read that?",
                version.0
            ))),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_second_refusal_holds_a_replica_off_for_a_while() {
        let refusals = Refusals::default();
        let note = |name: &str, now_ms| refusals.note(name, Version::REDIS_7_4, now_ms);
        let is_held = |name: &str, now_ms| refusals.check(name, now_ms).is_err();
        note("a:1", 10);
        note("b:1", 10);
        assert!(!is_held("a:1", 10) && !is_held("b:1", 10) && !is_held("c:1", 10));
        note("a:1", 20);
        assert!(is_held("a:1", 20) && !is_held("b:1", 20));
        assert!(is_held("a:1", 19 + HOLD_MS) && !is_held("a:1", 20 + HOLD_MS));
        // Once more, and it is held again.
        note("a:1", 20 + HOLD_MS);
        assert!(is_held("a:1", 20 + HOLD_MS));
        refusals.forget("a:1");
        assert!(!is_held("a:1", 20 + HOLD_MS));
    }

    #[test]
    fn not_everybody_is_known_for_ever() {
        let refusals = Refusals::default();
        for number in 0..2 * KNOWN_MAX {
            refusals.note(&number.to_string(), Version::REDIS_7_4, 0);
        }
        assert_eq!(lock(&refusals.0).len(), KNOWN_MAX);
    }
}
