//! What must be true of a cluster: at any time, and once all have spoken to all.

use std::collections::BTreeMap;

use kvasir_cluster::id::NodeId;
use kvasir_cluster::slots::{SLOTS, SlotSet};
use kvasir_cluster::state::Cluster;

use super::host::{Host, head};

/// The kind of a packet that is a vote.
const VOTE: u16 = 6;
/// What a node notes that has got the votes of a majority.
pub const WON: &str = "Failover election won: I'm the new master.";

#[derive(Default)]
pub struct Judge {
    /// For whom a node has voted in an epoch.
    votes: BTreeMap<(NodeId, u64), usize>,
    /// Who was elected by which epoch.
    winners: BTreeMap<u64, NodeId>,
}

impl Judge {
    pub fn votes(&self) -> usize {
        self.votes.len()
    }

    /// A node says something to a host.
    pub fn hear(&mut self, sender: &Host, to: usize, bytes: &[u8]) -> Result<(), String> {
        let (kind, epoch) = head(bytes);
        let (me, safe) = (sender.cluster.my_id(), sender.safe);
        if epoch > safe.0 {
            return Err(format!("{me:?} tells of epoch {epoch}, and its disk has {}", safe.0));
        }
        if kind != VOTE {
            return Ok(());
        }
        if epoch > safe.1 {
            return Err(format!("{me:?} votes in epoch {epoch}, and its disk has {}", safe.1));
        }
        let former = *self.votes.entry((me, epoch)).or_insert(to);
        match former == to {
            true => Ok(()),
            false => Err(format!("{me:?} votes for {former} and for {to} in epoch {epoch}")),
        }
    }

    /// A replica has got its votes.
    pub fn elected(&mut self, winner: &Cluster) -> Result<(), String> {
        let (me, epoch) = (winner.my_id(), winner.me().config_epoch);
        let former = *self.winners.entry(epoch).or_insert(me);
        match former == me {
            true => Ok(()),
            false => Err(format!("{former:?} and {me:?} are elected by epoch {epoch}")),
        }
    }
}

/// Fails unless all agree, and are well.
pub fn check_peace(nodes: &[&Cluster]) -> Result<(), String> {
    let mut epochs = BTreeMap::new();
    let mut owned = SlotSet::default();
    for cluster in nodes {
        let me = cluster.me();
        if !me.votes() {
            continue;
        }
        if let Some(other) = epochs.insert(me.config_epoch, me.id) {
            let epoch = me.config_epoch;
            return Err(format!("{other:?} and {:?} both have epoch {epoch}", me.id));
        }
        if let Some(slot) = me.slots.iter().find(|slot| !owned.insert(*slot)) {
            return Err(format!("slot {slot} has two owners, {:?} is one of them", me.id));
        }
    }
    if let Some(slot) = (0..SLOTS).find(|slot| !owned.contains(*slot)) {
        return Err(format!("slot {slot} has no owner"));
    }
    for cluster in nodes {
        let me = cluster.my_id();
        let primary = cluster.me().primary.and_then(|id| cluster.node(id));
        if primary.is_some_and(|node| !node.is_primary()) {
            return Err(format!("{me:?} is the replica of a replica"));
        }
        if !cluster.is_ok() {
            return Err(format!("{me:?} takes the cluster for down"));
        }
        if cluster.nodes().count() != nodes.len() {
            return Err(format!("{me:?} knows {} nodes", cluster.nodes().count()));
        }
        for other in nodes {
            let known = cluster.node(other.my_id()).map(|node| &node.slots);
            let own = other.me();
            let expect = if own.is_primary() { &own.slots } else { &SlotSet::default() };
            if known != Some(expect) {
                let of = own.id;
                return Err(format!(
                    "{me:?} has {known:?} for the slots of {of:?}, which are {expect:?}"
                ));
            }
            if cluster.node(own.id).map(|node| node.primary) != Some(own.primary) {
                return Err(format!("{me:?} does not know whom {:?} follows", own.id));
            }
        }
    }
    Ok(())
}
