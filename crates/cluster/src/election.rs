//! A replica takes over from a primary that has failed, if a majority of primaries agrees.
//!
//! A primary gives one vote an epoch, and has it on the disk before it tells of it: so no two
//! replicas win with one epoch, and who wins has the greatest.

use crate::gossip::Purpose;
use crate::id::NodeId;
use crate::node::{Flags, Node};
use crate::output::Action;
use crate::packet::{Body, FORCE_ACK, Header, Packet};
use crate::state::Cluster;

/// Before it asks for votes a replica waits, so that all have heard of the failure, ...
const DELAY_MS: u64 = 500;
/// ...and longer for each replica that has more of the data.
const DELAY_BY_RANK_MS: u64 = 1_000;
const ELECTION_TIMEOUT_MIN_MS: u64 = 2_000;

#[derive(Debug, Default)]
pub struct Election {
    /// When votes are or were asked for; 0: never.
    at_ms: u64,
    is_sent: bool,
    votes: usize,
    rank: u64,
    epoch: u64,
    is_forced: bool,
    why_not: Option<&'static str>,
}

impl Election {
    pub(crate) fn is_forced(&self) -> bool {
        self.is_forced
    }

    pub(crate) fn forget(&mut self) {
        *self = Election::default();
    }
}

impl Cluster {
    /// Does what is due, as a replica.
    pub(crate) fn run_election(&mut self, now_ms: u64) {
        self.election.is_forced = self.manual.may_start();
        let is_manual = self.manual.may_start();
        let timeout_ms =
            self.options.node_timeout_ms.saturating_mul(2).max(ELECTION_TIMEOUT_MIN_MS);
        if !self.may_take_over(is_manual) {
            return;
        }
        let age_ms = now_ms.saturating_sub(self.election.at_ms);
        let is_over = self.election.at_ms == 0 || age_ms > timeout_ms.saturating_mul(2);
        if is_over && now_ms >= self.election.at_ms {
            self.schedule_election(is_manual, now_ms);
            return;
        }
        if !self.election.is_sent && !self.manual.is_under_way() {
            let rank = self.rank();
            if rank > self.election.rank {
                self.election.at_ms += (rank - self.election.rank) * DELAY_BY_RANK_MS;
                self.election.rank = rank;
            }
        }
        if now_ms < self.election.at_ms {
            self.say_why_not("Waiting the delay before I can start a new failover.");
            return;
        }
        if age_ms > timeout_ms {
            self.say_why_not("Failover attempt expired.");
            return;
        }
        if !self.election.is_sent {
            self.ask_for_votes();
            return;
        }
        if self.election.votes < self.quorum() {
            self.say_why_not("Waiting for votes, but majority still not reached.");
            return;
        }
        self.note("Failover election won: I'm the new master.".into());
        let epoch = self.election.epoch;
        if self.me().config_epoch < epoch {
            self.me_mut().config_epoch = epoch;
        }
        self.take_over(now_ms);
    }

    fn may_take_over(&mut self, is_manual: bool) -> bool {
        let me = self.me();
        let primary = me.primary.and_then(|id| self.nodes.get(&id));
        let Some(primary) = primary.filter(|_| me.is_replica()) else { return false };
        let is_wanted = (primary.is(Flags::FAIL) && !self.options.is_no_failover) || is_manual;
        if !is_wanted || primary.slots.is_empty() {
            self.election.why_not = None;
            return false;
        }
        let age_ms = self.local.data_age_ms.saturating_sub(self.options.node_timeout_ms);
        let factor = self.options.replica_validity_factor;
        let limit_ms = self.options.node_timeout_ms.saturating_mul(factor);
        let limit_ms = limit_ms.saturating_add(self.options.repl_ping_period_ms);
        if factor != 0 && age_ms > limit_ms && !is_manual {
            self.say_why_not(
                "Disconnected from master for longer than allowed. Please check the \
                 'cluster-replica-validity-factor' configuration option.",
            );
            return false;
        }
        true
    }

    fn schedule_election(&mut self, is_manual: bool, now_ms: u64) {
        // Who was asked to take over does so, even if the primary fails before it can answer.
        let is_at_once = is_manual || self.manual.is_under_way();
        let rank = if is_at_once { 0 } else { self.rank() };
        let delay_ms = match is_at_once {
            true => 0,
            false => DELAY_MS + self.random.below(DELAY_MS) + rank * DELAY_BY_RANK_MS,
        };
        self.election.at_ms = now_ms + delay_ms;
        self.election.is_sent = false;
        self.election.votes = 0;
        self.election.rank = rank;
        self.note(format!(
            "Start of election delayed for {delay_ms} milliseconds (rank #{rank}, offset {}).",
            self.local.offset
        ));
        // The other replicas learn how far this one is.
        let primary = self.me().primary;
        self.announce(primary);
    }

    /// Replicas of the same primary that have more of its data.
    fn rank(&self) -> u64 {
        let Some(primary) = self.me().primary else { return 0 };
        let is_ahead = |node: &&Node| {
            node.id != self.me && !node.is(Flags::NOFAILOVER) && node.offset > self.local.offset
        };
        self.replicas_of(primary).filter(is_ahead).count() as u64
    }

    fn ask_for_votes(&mut self) {
        self.current_epoch += 1;
        self.election.epoch = self.current_epoch;
        self.election.is_sent = true;
        self.note(format!("Starting a failover election for epoch {}.", self.election.epoch));
        self.save();
        let packet = Packet { header: self.header(), body: Body::AuthRequest };
        self.broadcast(&packet);
    }

    fn say_why_not(&mut self, why: &'static str) {
        if self.election.why_not != Some(why) {
            self.election.why_not = Some(why);
            self.note(format!("Currently unable to failover: {why}"));
        }
    }

    pub(crate) fn count_vote(&mut self, sender: NodeId, header: &Header) {
        let votes = self.nodes.get(&sender).is_some_and(Node::votes);
        if votes && self.election.is_sent && header.current_epoch >= self.election.epoch {
            self.election.votes += 1;
        }
    }

    /// Votes for a replica, if nothing speaks against it.
    pub(crate) fn vote(&mut self, sender: NodeId, header: &Header, now_ms: u64) {
        if !self.me().votes() {
            return;
        }
        if let Some(why) = self.why_not_to_vote(sender, header, now_ms) {
            self.note(format!(
                "Failover auth denied to {sender} for epoch {}: {why}",
                header.current_epoch
            ));
            return;
        }
        let primary = self.nodes.get(&sender).and_then(|node| node.primary);
        if let Some(primary) = primary.and_then(|id| self.nodes.get_mut(&id)) {
            primary.voted_ms = now_ms;
        }
        self.last_vote_epoch = self.current_epoch;
        self.voted_for = Some(sender);
        self.save();
        self.note(format!("Failover auth granted to {sender} for epoch {}", self.current_epoch));
        if let Some(link) = self.nodes.get(&sender).and_then(|node| node.link) {
            let packet = Packet { header: self.header(), body: Body::AuthAck };
            self.send(link, &packet);
        }
    }

    pub(crate) fn why_not_to_vote(
        &mut self,
        sender: NodeId,
        header: &Header,
        now_ms: u64,
    ) -> Option<&'static str> {
        if header.current_epoch < self.current_epoch {
            return Some("its epoch is old");
        }
        if self.last_vote_epoch == self.current_epoch && !self.votes_twice {
            return Some("I have voted in this epoch");
        }
        if self.nodes.values().any(|node| node.config_epoch >= header.current_epoch) {
            return Some("its epoch is somebody's already");
        }
        let node = self.nodes.get(&sender)?;
        let primary = node.primary.and_then(|id| self.nodes.get(&id));
        let Some(primary) = primary.filter(|_| node.is_replica()) else {
            return Some("it is no replica of a master that I know");
        };
        if !primary.is(Flags::FAIL) && header.message_flags & FORCE_ACK == 0 {
            return Some("its master is up");
        }
        let is_forced = header.message_flags & FORCE_ACK != 0;
        let pause_ms = self.options.node_timeout_ms.saturating_mul(2);
        if !is_forced && now_ms.saturating_sub(primary.voted_ms) < pause_ms && primary.voted_ms != 0
        {
            return Some("I have voted for that master a moment ago");
        }
        if self.correct(sender, header.config_epoch, &header.slots) {
            return Some("it claims slots of a newer epoch");
        }
        None
    }

    /// This node is what its primary was, and tells everybody.
    pub(crate) fn take_over(&mut self, now_ms: u64) {
        let Some(former) = self.me().primary else { return };
        self.me_mut().change(Flags::REPLICA | Flags::MIGRATE_TO, Flags::PRIMARY);
        let has_others = self.replicas_of(former).any(|node| node.id != self.me);
        self.attach(self.me, None);
        self.me_mut().flags.set(Flags::MIGRATE_TO, has_others);
        let slots = self.nodes.get(&former).map(|node| node.slots.clone()).unwrap_or_default();
        for slot in slots.iter() {
            self.take_slot(slot);
            self.give_slot(slot, self.me);
        }
        self.end_manual();
        self.election.forget();
        self.followed = None;
        self.act(Action::BecomePrimary);
        self.save();
        self.update_state(now_ms);
        self.announce(None);
    }

    /// Pings a node before its time.
    pub(crate) fn ping_now(&mut self, id: NodeId, now_ms: u64) {
        if self.nodes.get(&id).is_some_and(|node| self.is_connected(node.link)) {
            self.greet(id, Purpose::Ping, now_ms);
        }
    }
}
