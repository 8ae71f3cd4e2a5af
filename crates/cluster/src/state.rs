//! One node's view of the cluster, and what all of its parts need.

use std::collections::BTreeMap;

use crate::confirm::Confirm;
use crate::election::Election;
use crate::grant::Grant;
use crate::id::NodeId;
use crate::links::Link;
use crate::manual::Manual;
use crate::node::{Flags, Node};
use crate::options::{Local, Options};
use crate::output::{Action, LinkId, Output};
use crate::packet::{FORCE_ACK, Header, KINDS, PAUSED};
use crate::random::Random;
use crate::slots::{SLOTS, SlotSet};

/// At the start a primary stays away from clients for so long, since it may be one no more.
const WRITABLE_DELAY_MS: u64 = 2_000;
/// Bounds of the time for which it does when it comes back to the majority.
const REJOIN_DELAY_MIN_MS: u64 = 500;
const REJOIN_DELAY_MAX_MS: u64 = 5_000;

pub struct Cluster {
    pub options: Options,
    pub(crate) local: Local,
    pub(crate) me: NodeId,
    pub(crate) nodes: BTreeMap<NodeId, Node>,
    /// By slot.
    pub(crate) owners: Vec<Option<NodeId>>,
    pub(crate) migrating: BTreeMap<u16, NodeId>,
    pub(crate) importing: BTreeMap<u16, NodeId>,
    /// Slots of others of which there may be keys here that count for nothing (`handover.rs`).
    pub(crate) foreign: SlotSet,
    pub(crate) grants: Vec<Grant>,
    /// Slots whose owner, as far as this node knows, says that they are not its own: whoever claims
    /// them has them.
    pub(crate) disowned: SlotSet,
    /// Nodes that are not to be learned of again, until then.
    pub(crate) forgotten: BTreeMap<NodeId, u64>,
    pub(crate) current_epoch: u64,
    pub(crate) last_vote_epoch: u64,
    pub(crate) is_ok: bool,
    /// Primaries with slots.
    pub(crate) size: usize,
    /// When it last did not reach the majority.
    pub(crate) minority_ms: u64,
    /// When the state was first looked at, after a start.
    pub(crate) first_look_ms: Option<u64>,
    pub(crate) election: Election,
    pub(crate) manual: Manual,
    pub(crate) confirm: Option<Confirm>,
    /// In the epoch of the last vote; unknown after a start.
    pub(crate) voted_for: Option<NodeId>,
    /// A node that others are to forget, while they are told of it, and for how many seconds.
    pub(crate) farewell: Option<(NodeId, u64)>,
    /// Whom the server was last told to follow, and where.
    pub(crate) followed: Option<(NodeId, String, u16)>,
    pub(crate) links: BTreeMap<LinkId, Link>,
    pub(crate) next_link: u64,
    pub(crate) ticks: u64,
    pub(crate) out: Output,
    pub(crate) random: Random,
    pub stats: Stats,
    /// For tests: the type of packets that are not looked at; -1: none, -2: all.
    pub drops: i64,
    pub closes_link_on_drop: bool,
    /// A fault that a simulation plants: to have voted in an epoch keeps from no other vote in it.
    pub votes_twice: bool,
}

/// Packets by kind, and what was refused.
#[derive(Clone, Default, Debug)]
pub struct Stats {
    pub sent: [u64; KINDS.len()],
    pub received: [u64; KINDS.len()],
    pub refused: u64,
    pub links_closed_for_length: u64,
}

impl Cluster {
    /// A node that knows nobody, of this seed.
    pub fn new(options: Options, seed: u64, now_ms: u64) -> Cluster {
        let mut random = Random::new(seed);
        let (me, shard) = (NodeId::random(&mut random), NodeId::random(&mut random));
        let node = Node::new(me, shard, Flags::MYSELF | Flags::PRIMARY, now_ms);
        let mut cluster = Cluster {
            options: Options::default(),
            local: Local::default(),
            me,
            nodes: BTreeMap::from([(me, node)]),
            owners: vec![None; usize::from(SLOTS)],
            migrating: BTreeMap::new(),
            importing: BTreeMap::new(),
            foreign: SlotSet::default(),
            grants: Vec::new(),
            disowned: SlotSet::default(),
            forgotten: BTreeMap::new(),
            current_epoch: 0,
            last_vote_epoch: 0,
            is_ok: false,
            size: 0,
            minority_ms: 0,
            first_look_ms: None,
            election: Election::default(),
            manual: Manual::default(),
            confirm: None,
            voted_for: None,
            farewell: None,
            followed: None,
            links: BTreeMap::new(),
            next_link: 0,
            ticks: 0,
            out: Output::default(),
            random,
            stats: Stats::default(),
            drops: -1,
            closes_link_on_drop: false,
            votes_twice: false,
        };
        cluster.set_options(options);
        cluster
    }

    /// Takes over what the configuration says now.
    pub fn set_options(&mut self, options: Options) {
        self.options = options;
        let options = self.options.clone();
        let me = self.me_mut();
        me.address.port = options.port;
        me.address.tls_port = options.tls_port;
        me.address.bus_port = options.bus_port;
        if !options.announce_ip.is_empty() {
            me.address.ip = options.announce_ip;
        }
        me.hostname = options.hostname;
        me.nodename = options.nodename;
        me.flags.set(Flags::NOFAILOVER, options.is_no_failover);
        me.flags.insert(Flags::EXTENSIONS);
        self.out.changed = true;
    }

    /// How replication goes; to be told before each tick.
    pub fn set_local(&mut self, local: Local) {
        self.local = local;
    }

    pub fn set_has_keys(&mut self, has_keys: bool) {
        self.local.has_keys = has_keys;
    }

    /// What is to be done, since this was last asked.
    pub fn take_output(&mut self) -> Output {
        std::mem::take(&mut self.out)
    }

    pub fn me(&self) -> &Node {
        &self.nodes[&self.me]
    }

    pub(crate) fn me_mut(&mut self) -> &mut Node {
        self.nodes.get_mut(&self.me).expect("a node knows itself")
    }

    pub fn my_id(&self) -> NodeId {
        self.me
    }

    pub fn node(&self, id: NodeId) -> Option<&Node> {
        self.nodes.get(&id)
    }

    pub fn nodes(&self) -> impl Iterator<Item = &Node> {
        self.nodes.values()
    }

    pub fn owner(&self, slot: u16) -> Option<&Node> {
        self.nodes.get(&self.owners.get(usize::from(slot)).copied().flatten()?)
    }

    pub fn is_ok(&self) -> bool {
        self.is_ok
    }

    pub fn epochs(&self) -> (u64, u64) {
        (self.current_epoch, self.last_vote_epoch)
    }

    /// The node whose data this one has: itself, or its primary.
    pub fn my_primary(&self) -> &Node {
        let me = self.me();
        me.primary.and_then(|id| self.nodes.get(&id)).unwrap_or(me)
    }

    pub(crate) fn replicas_of(&self, primary: NodeId) -> impl Iterator<Item = &Node> {
        self.nodes.values().filter(move |node| node.primary == Some(primary))
    }

    pub(crate) fn working_replicas_of(&self, primary: NodeId) -> usize {
        self.replicas_of(primary).filter(|node| !node.is(Flags::FAIL)).count()
    }

    pub(crate) fn quorum(&self) -> usize {
        self.size / 2 + 1
    }

    pub(crate) fn act(&mut self, action: Action) {
        self.out.actions.push(action);
    }

    pub(crate) fn note(&mut self, text: String) {
        self.out.notes.push(text);
    }

    /// The table has changed, and the file has to have it before anybody is told.
    pub(crate) fn save(&mut self) {
        self.out.saves = true;
        self.out.changed = true;
    }

    /// The table has changed, in what other nodes will say again or an administrator can: the file
    /// may have it a moment later. An older file is one that was true a moment ago.
    pub(crate) fn save_soon(&mut self) {
        self.out.saves_soon = true;
        self.out.changed = true;
    }

    /// What stands at the head of each packet of this node.
    pub(crate) fn header(&self) -> Header {
        let (me, primary) = (self.me(), self.my_primary());
        let is_primary = me.is_primary();
        let mut address = me.address.clone();
        address.ip.clone_from(&self.options.announce_ip);
        if self.options.is_tls {
            (address.port, address.tls_port) = (address.tls_port, address.port);
        }
        let mut message_flags = 0;
        if is_primary && self.manual.is_paused() {
            message_flags |= PAUSED;
        }
        if self.election.is_forced() {
            message_flags |= FORCE_ACK;
        }
        Header {
            sender: self.me,
            current_epoch: self.current_epoch,
            config_epoch: primary.config_epoch,
            offset: self.local.offset,
            slots: primary.slots.clone(),
            primary: me.primary,
            address,
            flags: me.flags,
            is_ok: self.is_ok,
            message_flags,
        }
    }

    /// Looks whether clients can be served: all slots have an owner, and a majority is reached.
    pub(crate) fn update_state(&mut self, now_ms: u64) {
        let first = *self.first_look_ms.get_or_insert(now_ms);
        let is_primary = self.me().is_primary();
        if is_primary && !self.is_ok && now_ms.saturating_sub(first) < WRITABLE_DELAY_MS {
            return;
        }
        let voters: Vec<&Node> = self.nodes.values().filter(|node| node.votes()).collect();
        let reached = voters.iter().filter(|node| !node.is_failing()).count();
        self.size = voters.len();
        let mut is_ok = true;
        if self.options.requires_full_coverage {
            // A slot has one owner, so counting is enough.
            let working = self.nodes.values().filter(|node| !node.is(Flags::FAIL));
            let covered: usize = working.map(|node| usize::from(node.slots.len())).sum();
            is_ok = covered == usize::from(SLOTS);
        }
        if reached < self.quorum() {
            is_ok = false;
            self.minority_ms = now_ms;
        }
        if is_ok == self.is_ok {
            return;
        }
        let delay = self.options.node_timeout_ms.clamp(REJOIN_DELAY_MIN_MS, REJOIN_DELAY_MAX_MS);
        if is_ok && is_primary && now_ms.saturating_sub(self.minority_ms) < delay {
            return;
        }
        self.is_ok = is_ok;
        self.out.changed = true;
        self.note(format!("Cluster state changed: {}", if is_ok { "ok" } else { "fail" }));
    }

    /// A node that a packet or a command has named.
    pub(crate) fn add_node(&mut self, node: Node) {
        self.out.changed = true;
        self.nodes.insert(node.id, node);
    }

    /// Forgets a node, and whatever names it.
    pub(crate) fn remove_node(&mut self, id: NodeId) {
        if id == self.me {
            return;
        }
        self.close_links_of(id);
        let Some(node) = self.nodes.remove(&id) else { return };
        for slot in node.slots.iter() {
            self.owners[usize::from(slot)] = None;
        }
        self.migrating.retain(|_, to| *to != id);
        self.importing.retain(|_, from| *from != id);
        for other in self.nodes.values_mut() {
            other.reports.retain(|(by, _)| *by != id);
            if other.primary == Some(id) {
                other.primary = None;
            }
        }
        if let Some(primary) = node.primary {
            self.look_for_replicas(primary);
        }
        self.out.changed = true;
    }

    /// A primary without replicas is none that should have some.
    pub(crate) fn look_for_replicas(&mut self, primary: NodeId) {
        let has_none = self.replicas_of(primary).next().is_none();
        if let Some(node) = self.nodes.get_mut(&primary).filter(|_| has_none) {
            node.flags.remove(Flags::MIGRATE_TO);
        }
    }

    /// `replica` is one of `primary` from now on, as far as this node knows.
    pub(crate) fn attach(&mut self, replica: NodeId, primary: Option<NodeId>) {
        let Some(node) = self.nodes.get_mut(&replica) else { return };
        let former = std::mem::replace(&mut node.primary, primary);
        if former == primary {
            return;
        }
        if let Some(former) = former {
            self.look_for_replicas(former);
        }
        let shard = primary.and_then(|id| self.nodes.get_mut(&id)).map(|primary| {
            primary.flags.insert(Flags::MIGRATE_TO);
            primary.shard
        });
        if let (Some(shard), Some(node)) = (shard, self.nodes.get_mut(&replica)) {
            node.shard = shard;
        }
        self.save();
    }

    /// Another node is a primary from now on, as far as this node knows.
    pub(crate) fn promote(&mut self, id: NodeId) {
        let Some(node) = self.nodes.get_mut(&id).filter(|node| !node.is_primary()) else { return };
        node.change(Flags::REPLICA | Flags::MIGRATE_TO, Flags::PRIMARY);
        let has_replicas = self.replicas_of(id).next().is_some();
        self.attach(id, None);
        if let Some(node) = self.nodes.get_mut(&id).filter(|_| has_replicas) {
            node.flags.insert(Flags::MIGRATE_TO);
        }
        self.save();
    }

    /// This node follows another one from now on.
    pub(crate) fn follow(&mut self, primary: NodeId) {
        if self.me().is_primary() {
            self.me_mut().change(Flags::PRIMARY | Flags::MIGRATE_TO, Flags::REPLICA);
            self.migrating.clear();
            self.importing.clear();
        }
        self.attach(self.me, Some(primary));
        self.end_manual();
        self.end_confirm();
        self.election.forget();
        self.follow_my_primary();
        self.save();
    }
}
