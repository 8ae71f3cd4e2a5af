//! The servers of a world.

use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;

use kvasir_cluster::id::NodeId;
use kvasir_cluster::random::Random;
use kvasir_config::Config;
use kvasir_keyspace::digest;
use kvasir_keyspace::rng::Rng;
use kvasir_reactor::clock;
use kvasir_reactor::sim::Network;
use kvasir_server::state::shared::Shared;
use kvasir_server::store::replication::upstream::Stage;
use kvasir_server::store::tuning::env;

use super::Setup;
use crate::bus::judge::check_peace;
use crate::disk::{Files, SimDisk};
use crate::luck::Luck;
use crate::machine::{Host, Part, Server};
use crate::nodes_file::{PORT, first_file};

/// Clocks are wrong by up to so much, either way.
const SKEW_MS: usize = 2_000;

pub struct Nodes {
    config: Config,
    all: Vec<Node>,
    pub ids: Vec<NodeId>,
    pub places: Vec<SocketAddr>,
}

struct Node {
    host: Host,
    disk: SimDisk,
    server: Option<Server>,
    /// When it starts again.
    start_ns: u64,
    /// It does nothing until then.
    stopped_until_ns: u64,
    skew_ns: i64,
}

/// A step of a server.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Step {
    Start,
    Part(Part),
}

impl Nodes {
    pub fn new(setup: Setup, network: &Network, rng: &mut Rng) -> Nodes {
        let size = setup.size();
        let count = size.primaries * (1 + size.replicas);
        let mut names = Random::new(rng.draw());
        let ids: Vec<NodeId> = (0..count).map(|_| NodeId::random(&mut names)).collect();
        let mut all = Vec::new();
        for index in 0..count {
            let text = first_file(index, &ids, size.primaries);
            let files = Files::from([(PathBuf::from("nodes.conf"), text.into_bytes())]);
            all.push(Node {
                host: Host {
                    network: network.clone(),
                    ip: IpAddr::from([10, 0, 0, index as u8 + 1]),
                    port: PORT,
                    workers: 1,
                },
                disk: SimDisk::with(&files, &[]),
                server: None,
                start_ns: 0,
                stopped_until_ns: 0,
                skew_ns: draw_skew(rng),
            });
        }
        let places = all.iter().map(|node| SocketAddr::new(node.host.ip, PORT)).collect();
        Nodes { config: setup.config(), all, ids, places }
    }

    pub fn count(&self) -> usize {
        self.all.len()
    }

    pub fn ip(&self, node: usize) -> IpAddr {
        self.all[node].host.ip
    }

    pub fn shared(&self, node: usize) -> Option<&'static Shared> {
        self.all[node].server.as_ref().map(|server| server.shared)
    }

    pub fn is_up(&self, node: usize) -> bool {
        self.all[node].server.is_some()
    }

    /// The steps that can be done, and from when on.
    pub fn dues(&mut self, dues: &mut Vec<(u64, usize, Step)>) {
        for (index, node) in self.all.iter_mut().enumerate() {
            let stopped_ns = node.stopped_until_ns;
            match &mut node.server {
                None => dues.push((node.start_ns, index, Step::Start)),
                Some(server) => {
                    let parts = server.dues().into_iter();
                    dues.extend(
                        parts.map(|(ns, part)| (ns.max(stopped_ns), index, Step::Part(part))),
                    );
                }
            }
        }
    }

    pub fn step(&mut self, node: usize, step: Step) -> Result<(), String> {
        let Node { host, disk, server, skew_ns, .. } = &mut self.all[node];
        clock::skew(*skew_ns);
        let done = match (step, &mut *server) {
            (Step::Part(part), Some(server)) => server.step(part),
            _ => Server::start(host, disk, self.config.clone(), None)
                .map(|started| *server = Some(started)),
        };
        clock::skew(0);
        done.map_err(|what| format!("server {node}: {what}"))
    }

    /// Has power go within the next operations of a disk; from then on nobody hears of the server.
    pub fn cut_in(&self, node: usize, operations: usize) {
        let Host { network, ip, .. } = self.all[node].host.clone();
        self.all[node].disk.cut_in(operations, move || network.silence(ip));
    }

    /// Whether power has gone meanwhile.
    pub fn was_cut(&mut self, node: usize) -> bool {
        let noted = self.all[node].disk.noted();
        noted.map(|disk| self.all[node].disk = disk).is_some()
    }

    /// Ends a server, until a time.
    pub fn crash(&mut self, node: usize, luck: Luck, start_ns: u64) {
        let node = &mut self.all[node];
        node.host.network.stop(node.host.ip);
        node.server = None;
        node.disk = SimDisk::with(&node.disk.after(luck), &[]);
        (node.start_ns, node.stopped_until_ns) = (start_ns, 0);
    }

    pub fn stop_until(&mut self, node: usize, ns: u64) {
        self.all[node].stopped_until_ns = ns;
    }

    /// Its clock is set, to the right time or a wrong one.
    pub fn set_clock(&mut self, node: usize, rng: &mut Rng) {
        self.all[node].skew_ns = draw_skew(rng);
    }

    /// Who says that it is a primary with slots.
    pub fn primaries(&self) -> Vec<usize> {
        let is_primary = |node: &usize| {
            let cluster = self.shared(*node).and_then(|shared| shared.cluster.as_ref());
            cluster.is_some_and(|node| node.look().me().votes())
        };
        (0..self.count()).filter(is_primary).collect()
    }

    /// Slots that are on their way to a node by hand.
    pub fn importing(&self) -> Vec<(usize, u16)> {
        let of = |node: usize| {
            let cluster = self.shared(node).and_then(|shared| shared.cluster.as_ref());
            let slots = cluster.map(|node| node.look().importing().map(|(slot, _)| slot).collect());
            let slots: Vec<u16> = slots.unwrap_or_default();
            slots.into_iter().map(move |slot| (node, slot))
        };
        (0..self.count()).flat_map(of).collect()
    }

    /// Primaries with slots that fewer follow than writes wait for: where slots come to a primary
    /// in the moment in which its replica takes over, both stay one.
    pub fn lonely(&self) -> Vec<usize> {
        let replicas = self.config.replication.write_quorum as usize;
        let is_lonely = |node: &usize| self.shard_of(*node).len() <= replicas;
        self.primaries().into_iter().filter(is_lonely).collect()
    }

    /// A primary and its replicas.
    pub fn shard_of(&self, primary: usize) -> Vec<usize> {
        let follows = |node: &usize| {
            let cluster = self.shared(*node).and_then(|shared| shared.cluster.as_ref());
            let of = cluster.and_then(|node| node.look().me().primary);
            *node == primary || of == Some(self.ids[primary])
        };
        (0..self.count()).filter(follows).collect()
    }

    /// Fails unless all agree about the cluster, and all of a shard have all of its data.
    pub fn check_peace(&self) -> Result<(), String> {
        let mut looks = Vec::new();
        for node in 0..self.count() {
            let cluster = self.shared(node).and_then(|shared| shared.cluster.as_ref());
            looks.push(cluster.ok_or_else(|| format!("server {node} is down"))?.look());
        }
        let nodes: Vec<_> = looks.iter().map(|look| &**look).collect();
        check_peace(&nodes)?;
        let primaries: Vec<_> = looks.iter().map(|look| look.me().primary).collect();
        drop(looks);
        for (node, primary) in primaries.into_iter().enumerate() {
            let shared = self.shared(node).ok_or("it is down")?;
            let jobs = shared.cluster.as_ref().map(|node| node.handovers.jobs());
            let is_busy = |job: &std::sync::Arc<kvasir_server::cluster::handovers::Job>| {
                !job.stage().is_last()
            };
            if jobs.is_some_and(|jobs| jobs.iter().any(is_busy)) {
                return Err(format!("slots still move at {node}"));
            }
            if !shared.aof.counts() || shared.saving.loading.is_under_way() {
                return Err(format!("server {node} still loads"));
            }
            let Some(at) = self.ids.iter().position(|id| Some(*id) == primary) else { continue };
            let end = self.shared(at).map(|shared| shared.keyspace.log.end());
            let is_online = shared.replication.upstream.stage() == Stage::Online;
            if !is_online || end != Some(shared.keyspace.log.end()) {
                return Err(format!("server {node} is behind: {}", self.describe()));
            }
        }
        Ok(())
    }

    /// Fails unless replicas have the data of their primaries.
    pub fn compare(&self) -> Result<(), String> {
        let of = |node| {
            let shared = self.shared(node).expect("all run");
            let env = env(&shared.config(), clock::now_unix_ms());
            let pass = shared.gate.exclusive();
            digest::of_data_set(&shared.keyspace, &pass, &env).to_string()
        };
        for node in 0..self.count() {
            let shared = self.shared(node).expect("all run");
            let primary = shared.cluster.as_ref().and_then(|node| node.look().me().primary);
            let Some(at) = self.ids.iter().position(|id| Some(*id) == primary) else { continue };
            if of(node) != of(at) {
                return Err(format!("server {node} has other data than its primary {at}"));
            }
        }
        Ok(())
    }

    /// How each of them is, for who reads what has gone wrong.
    pub fn describe(&self) -> String {
        let one = |node| match self.shared(node) {
            None => format!("{node} is down"),
            Some(shared) => format!(
                "{node}: {:?} of {:?} at {} aof {}",
                shared.replication.upstream.stage(),
                shared.replication.upstream.primary().map(|primary| primary.host),
                shared.keyspace.log.end(),
                shared.aof.counts(),
            ),
        };
        let all: Vec<String> = (0..self.count()).map(one).collect();
        all.join("; ")
    }
}

fn draw_skew(rng: &mut Rng) -> i64 {
    match rng.below(2) {
        0 => 0,
        _ => (rng.below(2 * SKEW_MS) as i64 - SKEW_MS as i64) * 1_000_000,
    }
}
