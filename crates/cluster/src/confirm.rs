//! Slots that this node has taken without a vote (`handover.rs`): clients are not served there
//! before a majority of primaries knows of it.
//!
//! Else a replica of their former owner could be elected by those who do not know: it claims these
//! slots by a newer epoch, and what clients have written here meanwhile is lost. Who knows that
//! they are this node's does not vote for a replica that claims them by an older epoch
//! (`Cluster::correct`); two majorities have a primary in common. That one may have voted
//! before it knew. If it was in a newer epoch, its answer says so, and this node takes a newer
//! one. If it was in the same epoch, it goes on to the next when it hears of this node's
//! (`note_taken_epoch`), and its answer says that.
//!
//! What is asked is a ping, which says who owns what, and what counts is the answer to it: they
//! come in the order of the pings of their link.

use std::collections::{BTreeMap, BTreeSet};

use crate::gossip::Purpose;
use crate::id::NodeId;
use crate::node::Node;
use crate::output::{Action, LinkId};
use crate::packet::Header;
use crate::slots::SlotSet;
use crate::state::Cluster;

#[derive(Debug)]
pub(crate) struct Confirm {
    slots: SlotSet,
    epoch: u64,
    /// The link over which a node was asked, and which of its answers there counts.
    asked: BTreeMap<NodeId, (LinkId, u64)>,
    /// Primaries that know.
    by: BTreeSet<NodeId>,
    /// Somebody is in a newer epoch.
    is_stale: bool,
}

impl Cluster {
    /// Slots that clients are not to be served in yet.
    pub fn unconfirmed(&self) -> Option<&SlotSet> {
        self.confirm.as_ref().map(|confirm| &confirm.slots)
    }

    /// Asks all primaries about these slots, and those that were asked about before.
    pub(crate) fn begin_to_confirm(&mut self, slots: &SlotSet, now_ms: u64) {
        let before = self.confirm.take().map(|confirm| confirm.slots).unwrap_or_default();
        self.confirm = Some(Confirm {
            slots: before.iter().chain(slots.iter()).collect(),
            epoch: self.me().config_epoch,
            asked: BTreeMap::new(),
            by: BTreeSet::new(),
            is_stale: false,
        });
        let others: Vec<(NodeId, u64)> = self
            .nodes
            .values()
            .filter(|node| node.votes() && node.id != self.me && self.is_connected(node.link))
            .map(|node| (node.id, node.ping_sent_ms))
            .collect();
        for (id, former_ms) in others {
            self.greet(id, Purpose::Ping, now_ms);
            // A ping that was sent before is still waited for.
            if let Some(node) = self.nodes.get_mut(&id).filter(|_| former_ms != 0) {
                node.ping_sent_ms = former_ms;
            }
        }
        self.end_if_confirmed();
    }

    /// A ping goes to that node.
    pub(crate) fn note_ping(&mut self, link: LinkId) {
        let Some(state) = self.links.get_mut(&link) else { return };
        state.pings += 1;
        let (Some(to), number) = (state.node.filter(|_| !state.is_inbound), state.pings) else {
            return;
        };
        if let Some(confirm) = &mut self.confirm
            && confirm.asked.get(&to).is_none_or(|(asked, _)| *asked != link)
        {
            confirm.asked.insert(to, (link, number));
        }
    }

    /// The answer to a ping has come.
    pub(crate) fn note_answer(&mut self, link: LinkId, sender: NodeId, header: &Header) {
        let Some(state) = self.links.get_mut(&link) else { return };
        state.pongs += 1;
        let number = state.pongs;
        let Some(confirm) = &mut self.confirm else { return };
        let asked = confirm.asked.get(&sender);
        if asked.is_none_or(|(by, first)| *by != link || number < *first) {
            return;
        }
        if header.current_epoch > confirm.epoch {
            confirm.is_stale = true;
        } else {
            confirm.by.insert(sender);
            self.end_if_confirmed();
        }
    }

    fn end_if_confirmed(&mut self) {
        let Some(confirm) = self.confirm.as_ref().filter(|confirm| !confirm.is_stale) else {
            return;
        };
        let votes = |id: &&NodeId| self.nodes.get(id).is_some_and(Node::votes);
        let count = confirm.by.iter().filter(votes).count() + usize::from(self.me().votes());
        if count >= self.quorum() {
            self.end_confirm();
        }
    }

    /// Clients are served again where they waited.
    pub(crate) fn end_confirm(&mut self) {
        if let Some(Confirm { slots, .. }) = self.confirm.take() {
            self.act(Action::Confirmed(slots));
        }
    }

    /// Others have these slots by now, and clients are to hear of that.
    pub(crate) fn forget_unconfirmed(&mut self, lost: &[u16]) {
        let Some(confirm) = &mut self.confirm else { return };
        let lost: SlotSet =
            lost.iter().copied().filter(|slot| confirm.slots.remove(*slot)).collect();
        let is_over = confirm.slots.is_empty();
        if !lost.is_empty() {
            self.act(Action::Confirmed(lost));
        }
        if is_over {
            self.confirm = None;
        }
    }

    /// Does what is due of it.
    pub(crate) fn run_confirm(&mut self, now_ms: u64) {
        if self.confirm.as_ref().is_some_and(|confirm| confirm.is_stale) {
            self.bump_epoch_always();
            let epoch = self.me().config_epoch;
            self.note(format!("configEpoch set to {epoch}, since others are in a newer one"));
            self.begin_to_confirm(&SlotSet::default(), now_ms);
            self.announce(None);
        }
        // Who votes may be others by now.
        self.end_if_confirmed();
    }

    /// A primary has the epoch in which this node has voted for somebody else. If that one wins,
    /// there are two with it; this node is in the next one from now on, so that the primary learns
    /// that its epoch is not its own.
    pub(crate) fn note_taken_epoch(&mut self, sender: NodeId, header: &Header) {
        let is_contested = header.primary.is_none()
            && header.config_epoch == self.last_vote_epoch
            && header.config_epoch == self.current_epoch
            && self.last_vote_epoch != 0
            && self.voted_for != Some(sender);
        if is_contested {
            self.current_epoch += 1;
            self.save();
        }
    }
}
