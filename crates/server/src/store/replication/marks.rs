//! What a node of a cluster says in its stream of slots that are handed over (`run/handover.rs`).

use kvasir_resp::encode::encode_request;
use kvasir_structures::gate::Pass;
use kvasir_structures::locks::lock;
use kvasir_structures::slot::SLOTS;

use crate::store::Store;

/// The field of a snapshot for replicas that names those slots.
pub const HIDDEN_FIELD: &str = "kvasir-slots-hidden";
/// Likewise for slots that were granted to others.
pub const GRANTED_FIELD: &str = "kvasir-slots-granted";
/// Before those slots.
pub const GRANTED: &str = "kvasir:slots:granted";
/// Before the slots whose keys count for nothing.
pub const HIDDEN: &str = "kvasir:slots:hidden";
/// Before the epoch and the slots that were taken.
pub const TAKEN: &str = "kvasir:slots:taken";

/// Says which slots have keys that count for nothing.
pub fn append_hidden(store: &Store, pass: &Pass<'_>) {
    if store.keyspace.log.is_open() {
        let text = format!("{HIDDEN} {}", hidden(store));
        store.keyspace.log.append(pass, &encode_request(&["ECHO", &text]));
    }
}

/// Says which slots are granted.
pub fn append_granted(store: &Store, pass: &Pass<'_>) {
    if store.keyspace.log.is_open() {
        let text = format!("{GRANTED} {}", lock(&store.replication.granted));
        store.keyspace.log.append(pass, &encode_request(&["ECHO", &text]));
    }
}

/// Those slots as `first-last,...`.
pub fn hidden(store: &Store) -> String {
    let mut runs: Vec<(u16, u16)> = Vec::new();
    for slot in (0..SLOTS as u16).filter(|slot| store.keyspace.hidden.has(*slot)) {
        match runs.last_mut() {
            Some((_, last)) if *last + 1 == slot => *last = slot,
            _ => runs.push((slot, slot)),
        }
    }
    let words: Vec<String> = runs.iter().map(|(first, last)| format!("{first}-{last}")).collect();
    words.join(",")
}
