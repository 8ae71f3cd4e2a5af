//! nodes.conf of the nodes of a world in which all know each other from the beginning.

use std::fmt::Write;

use kvasir_cluster::id::NodeId;
use kvasir_cluster::slots::{SLOTS, SlotSet};

pub const PORT: u16 = 6_379;
pub const BUS_PORT: u16 = 16_379;

/// Of one of these nodes, of which the first so many share the slots, and each of the others
/// follows one of those, in turn.
pub fn first_file(me: usize, ids: &[NodeId], primaries: usize) -> String {
    let mut text = String::new();
    for (host, id) in ids.iter().enumerate() {
        let myself = if host == me { "myself," } else { "" };
        let shard = ids[host % primaries];
        let place = format!("{}:{PORT}@{BUS_PORT},,tls-port=0,shard-id={shard}", ip(host));
        let epoch = host % primaries + 1;
        // Nothing fails that is written to a string.
        let _ = match host < primaries {
            true => {
                let of = |slot: u16| usize::from(slot) * primaries / usize::from(SLOTS);
                let slots: SlotSet = (0..SLOTS).filter(|slot| of(*slot) == host).collect();
                let slots = slots.words(" ");
                writeln!(text, "{id} {place} {myself}master - 0 0 {epoch} connected {slots}")
            }
            false => writeln!(text, "{id} {place} {myself}slave {shard} 0 0 {epoch} connected"),
        };
    }
    text + &format!("vars currentEpoch {primaries} lastVoteEpoch 0\n")
}

pub fn ip(host: usize) -> String {
    format!("10.0.0.{}", host + 1)
}
