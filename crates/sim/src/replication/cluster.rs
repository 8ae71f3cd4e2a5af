//! The servers of a world, which of them is the primary, and who follows whom.

use std::net::{IpAddr, SocketAddr};

use kvasir_config::Config;
use kvasir_keyspace::digest;
use kvasir_keyspace::rng::Rng;
use kvasir_reactor::clock;
use kvasir_reactor::sim::Network;
use kvasir_server::state::shared::Shared;
use kvasir_server::store::replication::role;
use kvasir_server::store::replication::upstream::{Primary, Stage};
use kvasir_server::store::tuning::env;

use super::reigns::Reigns;
use super::{Canary, Setup, Size};
use crate::disk::{Files, SimDisk};
use crate::luck::Luck;
use crate::machine::{Elsewhere, Host, Part, Server};

const PORT: u16 = 6379;

pub struct Cluster {
    size: Size,
    config: Config,
    /// The end of the primary's stream, where that fault is planted.
    elsewhere: Option<Elsewhere>,
    nodes: Vec<Node>,
    /// As far as those know who decide.
    pub primary: usize,
    reigns: Reigns,
}

struct Node {
    host: Host,
    disk: SimDisk,
    server: Option<Server>,
    /// When it starts again.
    start_ns: u64,
}

/// A step of a server.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Step {
    Start,
    Part(Part),
}

impl Cluster {
    pub fn new(setup: Setup, network: &Network, rng: &mut Rng) -> Cluster {
        let node = |index| Node {
            host: Host {
                network: network.clone(),
                ip: IpAddr::from([10, 0, 0, index as u8 + 1]),
                port: PORT,
                workers: 1 + rng.below(2),
            },
            disk: SimDisk::with(&Files::new(), &[]),
            server: None,
            start_ns: 0,
        };
        let size = setup.size();
        Cluster {
            size,
            config: setup.config(),
            elsewhere: (setup.canary == Some(Canary::GoesOnElsewhere)).then(Elsewhere::default),
            nodes: (0..size.nodes).map(node).collect(),
            primary: 0,
            reigns: Reigns::default(),
        }
    }

    pub fn reigns(&self) -> usize {
        self.reigns.count()
    }

    pub fn count(&self) -> usize {
        self.nodes.len()
    }

    pub fn address(&self, node: usize) -> SocketAddr {
        SocketAddr::new(self.nodes[node].host.ip, PORT)
    }

    fn shared(&self, node: usize) -> Option<&'static Shared> {
        self.nodes[node].server.as_ref().map(|server| server.shared)
    }

    fn running(&self) -> Vec<usize> {
        (0..self.count()).filter(|node| self.nodes[*node].server.is_some()).collect()
    }

    /// The steps that can be done, and from when on.
    pub fn dues(&mut self) -> Vec<(u64, usize, Step)> {
        let mut dues = Vec::new();
        for (index, node) in self.nodes.iter_mut().enumerate() {
            match &mut node.server {
                None => dues.push((node.start_ns, index, Step::Start)),
                Some(server) => {
                    let parts = server.dues().into_iter();
                    dues.extend(parts.map(|(ns, part)| (ns, index, Step::Part(part))));
                }
            }
        }
        dues
    }

    pub fn step(&mut self, node: usize, step: Step) -> Result<(), String> {
        if let (Some(elsewhere), Some(shared)) = (&self.elsewhere, self.shared(self.primary)) {
            elsewhere.set(shared.keyspace.log.end());
        }
        let done = match (step, &mut self.nodes[node].server) {
            (Step::Part(part), Some(server)) => server.step(part),
            _ => self.start(node),
        };
        done.map_err(|what| format!("server {node}: {what}"))
    }

    /// It follows the primary. One that was the primary itself has another one decide.
    fn start(&mut self, node: usize) -> Result<(), String> {
        let mut config = self.config.clone();
        let is_first = self.reigns.count() == 0 && node == self.primary;
        if !is_first {
            let other = if node == self.primary { (node + 1) % self.count() } else { self.primary };
            let address = self.address(other);
            config.replication.primary = vec![address.ip().to_string(), address.port().to_string()];
        }
        let Node { host, disk, server, .. } = &mut self.nodes[node];
        let started = Server::start(host, disk, config, self.elsewhere.clone())?;
        if is_first {
            let history = started.shared.replication.history();
            self.reigns.begin(history.id, -1, 0);
        }
        *server = Some(started);
        Ok(())
    }

    /// Has power go within the next operations of a disk.
    pub fn note_in(&self, node: usize, operations: usize) {
        self.nodes[node].disk.note_in(operations);
    }

    /// Whether power has gone meanwhile.
    pub fn has_noted(&mut self, node: usize) -> bool {
        let noted = self.nodes[node].disk.noted();
        noted.map(|disk| self.nodes[node].disk = disk).is_some()
    }

    /// Ends a server, until a time.
    pub fn crash(&mut self, node: usize, luck: Luck, start_ns: u64) {
        let node = &mut self.nodes[node];
        node.host.network.stop(node.host.ip);
        node.server = None;
        node.disk = SimDisk::with(&node.disk.after(luck), &[]);
        node.start_ns = start_ns;
    }

    pub fn is_up(&self, node: usize) -> bool {
        self.nodes[node].server.is_some()
    }

    /// Whether there is a primary, and it is the one that it should be.
    pub fn has_primary(&self) -> bool {
        let shared = self.shared(self.primary);
        shared.is_some_and(|shared| !shared.replication.upstream.is_replica())
    }

    fn rank(&self, node: usize) -> Option<(isize, u64)> {
        let shared = self.shared(node)?;
        let history = shared.replication.history();
        Some(self.reigns.rank(&history, shared.keyspace.log.end()))
    }

    /// Asks some of the servers, if there are enough, and makes the one primary of them that has
    /// the latest data. Returns those whose part has changed.
    pub fn elect(&mut self, rng: &mut Rng, asks_all: bool) -> Vec<usize> {
        let mut asked = self.running();
        asked.retain(|_| asks_all || rng.below(8) > 0);
        if asked.len() < self.count() - self.size.quorum + 1 {
            return Vec::new();
        }
        let first = *asked.iter().max_by_key(|node| self.rank(**node)).expect("they are some");
        let shared = self.shared(first).expect("it runs");
        let mut changed = Vec::new();
        let alone = shared.gate.exclusive();
        let upstream = &shared.replication.upstream;
        if upstream.is_replica() {
            let (before, start) = self.rank(first).expect("it runs");
            role::become_primary(shared, &alone, clock::now_unix_ms());
            let history = shared.replication.history();
            self.reigns.begin(history.id, before, start);
            changed.push(first);
        }
        drop(alone);
        self.primary = first;
        for node in asked {
            if node != first && self.follow(node, first) {
                changed.push(node);
            }
        }
        changed
    }

    /// Has a server follow another one. Says whether that is new.
    fn follow(&self, node: usize, other: usize) -> bool {
        let Some(shared) = self.shared(node) else { return false };
        let address = self.address(other);
        let primary = Primary { host: address.ip().to_string(), port: address.port() };
        let _alone = shared.gate.exclusive();
        if shared.replication.upstream.primary().as_ref() == Some(&primary) {
            return false;
        }
        role::become_replica(shared, primary, clock::now_unix_ms());
        true
    }

    /// Has some server follow the primary, or one that does. Returns it if its part has changed.
    pub fn arrange(&self, rng: &mut Rng) -> Option<usize> {
        let node = rng.below(self.count());
        if node == self.primary || !self.has_primary() {
            return None;
        }
        let other = rng.below(self.count());
        let follows_primary = self.primary_of(other) == Some(self.address(self.primary));
        let is_chained = other != node && follows_primary && rng.below(3) == 0;
        let to = if is_chained { other } else { self.primary };
        self.follow(node, to).then_some(node)
    }

    fn primary_of(&self, node: usize) -> Option<SocketAddr> {
        let primary = self.shared(node)?.replication.upstream.primary()?;
        Some(SocketAddr::new(primary.host.parse().ok()?, primary.port))
    }

    /// Has all follow the primary.
    pub fn arrange_all(&self) {
        for node in self.running().into_iter().filter(|node| *node != self.primary) {
            self.follow(node, self.primary);
        }
    }

    /// Whether all have what the primary has.
    pub fn is_whole(&self) -> bool {
        let Some(primary) = self.shared(self.primary) else { return false };
        let (id, end) = (primary.replication.history().id, primary.keyspace.log.end());
        (0..self.count()).all(|node| {
            let Some(shared) = self.shared(node) else { return false };
            let (replication, aof) = (&shared.replication, &shared.aof);
            let follows = node == self.primary || replication.upstream.stage() == Stage::Online;
            let has_all = replication.history().id == id && shared.keyspace.log.end() == end;
            follows && has_all && aof.counts() && !shared.saving.loading.is_under_way()
        })
    }

    /// How each of them is, for who reads what has gone wrong.
    pub fn describe(&self) -> String {
        let one = |node| match self.shared(node) {
            None => format!("{node} is down"),
            Some(shared) => format!(
                "{node}: {:?} of {:?} at {} of {:.6} aof {}",
                shared.replication.upstream.stage(),
                shared.replication.upstream.primary().map(|primary| primary.host),
                shared.keyspace.log.end(),
                shared.replication.history().id,
                shared.aof.counts(),
            ),
        };
        let all: Vec<String> = (0..self.count()).map(one).collect();
        format!("primary {}; {}", self.primary, all.join("; "))
    }

    /// Fails unless all servers have the same data.
    pub fn compare(&self) -> Result<(), String> {
        let of = |node| {
            let shared = self.shared(node).expect("all run");
            let env = env(&shared.config(), clock::now_unix_ms());
            let pass = shared.gate.exclusive();
            digest::of_data_set(&shared.keyspace, &pass, &env).to_string()
        };
        let expect = of(self.primary);
        match (0..self.count()).find(|node| of(*node) != expect) {
            None => Ok(()),
            Some(node) => {
                Err(format!("server {node} has other data than the primary: {}", self.describe()))
            }
        }
    }
}
