//! A failover that an administrator asks a replica for: its primary holds its clients until the
//! replica has all of the data; `FORCE` does without the primary, `TAKEOVER` without anybody.

use crate::id::NodeId;
use crate::node::Flags;
use crate::output::Action;
use crate::packet::{Body, Packet};
use crate::state::Cluster;

/// The primary holds its clients for so many times the timeout.
const PAUSE_FACTOR: u64 = 2;

#[derive(Debug, Default)]
pub struct Manual {
    /// 0: none is under way.
    end_ms: u64,
    /// As a primary: who takes over.
    replica: Option<NodeId>,
    /// As a replica: how far the primary was when it began to hold its clients.
    primary_offset: Option<u64>,
    may_start: bool,
    is_paused: bool,
}

impl Manual {
    pub(crate) fn is_under_way(&self) -> bool {
        self.end_ms != 0
    }

    /// As a replica: it has all of the data.
    pub(crate) fn may_start(&self) -> bool {
        self.is_under_way() && self.may_start
    }

    pub(crate) fn replica(&self) -> Option<NodeId> {
        self.replica
    }

    pub(crate) fn note_primary_offset(&mut self, offset: u64) {
        if self.is_under_way() && self.primary_offset.is_none() {
            self.primary_offset = Some(offset);
        }
    }

    /// As a primary: its clients wait by now, so what it says of its offset is the last word.
    pub(crate) fn is_paused(&self) -> bool {
        self.is_under_way() && self.is_paused
    }
}

impl Cluster {
    /// CLUSTER FAILOVER, after its conditions were looked at.
    pub(crate) fn begin_manual(&mut self, is_forced: bool, primary: NodeId, now_ms: u64) {
        self.end_manual();
        self.election.forget();
        self.manual.end_ms = now_ms + self.options.manual_failover_timeout_ms;
        if is_forced {
            self.note("Forced failover user request accepted.".into());
            self.manual.may_start = true;
            return;
        }
        self.note("Manual failover user request accepted.".into());
        if let Some(link) = self.nodes.get(&primary).and_then(|node| node.link) {
            let packet = Packet { header: self.header(), body: Body::ManualStart };
            self.send(link, &packet);
        }
    }

    /// A replica of this node wants to take over.
    pub(crate) fn begin_manual_as_primary(&mut self, replica: NodeId, now_ms: u64) {
        let is_mine = self.nodes.get(&replica).is_some_and(|node| node.primary == Some(self.me));
        if !is_mine || !self.me().is_primary() {
            return;
        }
        self.end_manual();
        let timeout_ms = self.options.manual_failover_timeout_ms;
        self.manual.end_ms = now_ms + timeout_ms;
        self.manual.replica = Some(replica);
        self.note(format!("Manual failover requested by replica {replica}."));
        self.act(Action::PauseWrites { until_ms: now_ms + timeout_ms * PAUSE_FACTOR });
    }

    /// Clients wait, and this is how far the stream is that the replica has to have.
    pub fn writes_are_paused(&mut self, offset: u64, now_ms: u64) {
        self.local.offset = offset;
        self.manual.is_paused = true;
        if let Some(replica) = self.manual.replica {
            self.ping_now(replica, now_ms);
        }
    }

    /// Whatever came of it, clients of a primary go on.
    pub(crate) fn end_manual(&mut self) {
        if self.manual.replica.is_some() {
            self.act(Action::Unpause);
        }
        self.manual = Manual::default();
    }

    /// Does what is due of it.
    pub(crate) fn run_manual(&mut self, now_ms: u64) {
        if !self.manual.is_under_way() {
            return;
        }
        if now_ms > self.manual.end_ms {
            self.note("Manual failover timed out.".into());
            self.end_manual();
            return;
        }
        if self.me().is(Flags::REPLICA)
            && !self.manual.may_start
            && self.manual.primary_offset.is_some_and(|offset| self.local.offset >= offset)
        {
            self.note("All master replication stream processed, manual failover can start.".into());
            self.manual.may_start = true;
        }
    }
}
