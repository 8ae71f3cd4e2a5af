//! What becomes of this server's data and its clients while slots are handed over, with the gate
//! closed. Who sends and takes slots is `handover`.
//!
//! Replicas hear of it in the stream. The lines for that are calls of ECHO: whoever is no Kvasir
//! executes them, and nothing happens, be it a replica or what loads an append-only file.

use kvasir_cluster::grant;
use kvasir_cluster::slots::SlotSet;
use kvasir_keyspace::place::DbIndex;
use kvasir_keyspace::waiting::note_all;
use kvasir_resp::args::Args;
use kvasir_resp::encode::encode_request;
use kvasir_structures::gate::ExclusivePass;
use kvasir_structures::locks::lock;

use crate::cluster::Node;
use crate::run::cluster::tell;
use crate::state::core::Core;
use crate::state::shared::Shared;
use crate::store::replication::marks;
use crate::workers::Message;

/// Has nobody see keys that count for nothing.
pub fn hide(shared: &Shared, node: &Node, alone: &ExclusivePass<'_>) {
    let cluster = node.look();
    shared.keyspace.hidden.set(cluster.foreign().iter());
    if cluster.me().is_primary() {
        marks::append_hidden(shared, alone);
    }
}

/// What is granted has changed, or is this node's to say from now on.
pub fn tell_granted(shared: &Shared, node: &Node, alone: &ExclusivePass<'_>) {
    *lock(&shared.replication.granted) = grant::words(node.look().grants());
    if !shared.replication.upstream.is_replica() {
        marks::append_granted(shared, alone);
    }
}

/// It is known whose slots of a grant are: calls about them go on here, or are sent there.
pub fn end_grant(
    shared: &'static Shared,
    node: &Node,
    alone: &ExclusivePass<'_>,
    job: &str,
    slots: &SlotSet,
) {
    let is_granted = node.look().grants().iter().any(|grant| grant.job == job);
    // A replica's are its primary's to end.
    if is_granted && !shared.replication.upstream.is_replica() {
        node.change(|cluster| cluster.end_grant(job));
        tell_granted(shared, node, alone);
    }
    hold(shared, node, alone, slots, false);
}

/// Ends imports that cannot be right any more: of slots that another has by now, or as a replica.
/// Returns their slots.
pub fn end_imports(node: &Node) -> Vec<u16> {
    let cluster = node.look();
    node.handovers.end_imports(|job| {
        cluster.check_handover().is_ok() && cluster.owns_all(job.source, &job.slots)
    })
}

/// Puts calls about these slots off, from now on, or not any more.
pub fn hold(
    shared: &'static Shared,
    node: &Node,
    alone: &ExclusivePass<'_>,
    slots: &SlotSet,
    are_held: bool,
) {
    node.handovers.hold(slots, are_held);
    let (cluster, held) = (node.look(), node.handovers.held());
    node.routes.publish(&cluster, &held);
    drop((cluster, held));
    if !are_held {
        // Who waits for a key was not served meanwhile.
        let mut core = Core::new(shared, 0);
        note_all(&shared.keyspace, alone, DbIndex(0), &mut core.tally);
        tell(shared, core, Vec::new());
        shared.send_all(|| Message::SlotsChanged);
    }
}

/// Tells replicas that slots were taken; what they hear before that is all the keys.
pub fn tell_taken(shared: &Shared, alone: &ExclusivePass<'_>, slots: &SlotSet, epoch: u64) {
    if shared.keyspace.log.is_open() {
        let text = format!("{} {epoch} {}", marks::TAKEN, slots.words(","));
        shared.keyspace.log.append(alone, &encode_request(&["ECHO", &text]));
    }
}

/// This replica's primary says which slots it has granted.
pub fn learn_granted(shared: &Shared, node: &Node, words: &str) {
    node.change(|cluster| cluster.learn_grants(words));
    words.trim().clone_into(&mut lock(&shared.replication.granted));
}

/// What this replica's primary says by a call of ECHO, if it is one of those.
pub fn learn(shared: &Shared, node: &Node, args: Args<'_>, now_ms: u64) {
    let Some(text) = args.get(1).and_then(|text| std::str::from_utf8(text).ok()) else { return };
    if let Some(slots) = text.strip_prefix(marks::HIDDEN) {
        if let Some(slots) = SlotSet::parse(slots.trim(), ',') {
            node.change(|cluster| cluster.learn_foreign(slots));
        }
    } else if let Some(words) = text.strip_prefix(marks::GRANTED) {
        learn_granted(shared, node, words);
        return;
    } else if let Some(words) = text.strip_prefix(marks::TAKEN)
        && let Some((epoch, slots)) = words.trim().split_once(' ')
        && let (Ok(epoch), Some(slots)) = (epoch.parse(), SlotSet::parse(slots, ','))
    {
        node.change(|cluster| cluster.learn_taken(&slots, epoch, now_ms));
    } else {
        return;
    }
    // It has the gate closed for what follows.
    node.wake();
}
