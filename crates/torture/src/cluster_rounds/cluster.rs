//! Three primaries and three replicas, each in its network: how they are formed, struck and mended,
//! and what all of them have to say alike.

use std::cell::RefCell;
use std::net::SocketAddr;

use anyhow::{Context, Result, bail, ensure};
use kvasir_harness::client::Client;
use kvasir_harness::directory::Directory;
use kvasir_harness::server::{Home, Launch, Server};
use kvasir_harness::wait::wait_until;
use kvasir_harness::workspace::{command, output};
use kvasir_structures::crc16::SLOTS;

use super::mixes::{Mix, Program};
use super::{Fault, network};

pub const NODES: usize = 6;
pub const PRIMARIES: usize = 3;
const NODE_TIMEOUT_MS: &str = "2000";

struct Node {
    launch: Launch,
    home: Home,
    server: Server,
    id: String,
    _dir: Directory,
}

pub struct Cluster {
    pub mix: &'static Mix,
    nodes: Vec<Node>,
}

/// What a node says of all.
#[derive(PartialEq, Eq)]
struct View {
    /// By node; `None`: it is a primary.
    primary_of: Vec<Option<usize>>,
    /// By slot.
    owners: Vec<usize>,
    /// By node.
    epochs: Vec<u64>,
}

impl Cluster {
    pub fn form(mix: &'static Mix, program: &Program) -> Result<Cluster> {
        let start = |node| Node::start(mix, node, program);
        let nodes = (0..NODES).map(start).collect::<Result<Vec<_>>>()?;
        let cluster = Cluster { mix, nodes };
        let mut create = command("redis-cli");
        create.args(["--cluster", "create"]);
        create.args(cluster.nodes[..PRIMARIES].iter().map(|node| node.home.address.to_string()));
        output(create.arg("--cluster-yes"))?;
        let first = cluster.nodes[0].home.address;
        let (ip, port) = (first.ip().to_string(), first.port().to_string());
        for (node, primary) in cluster.nodes[PRIMARIES..].iter().zip(&cluster.nodes) {
            ensure!(node.ask(&["CLUSTER", "MEET", &ip, &port])? == "OK", "it meets the others");
            wait_until("its primary is known", || {
                let words: [&[u8]; 3] = [b"CLUSTER", b"REPLICATE", primary.id.as_bytes()];
                Ok(node.server.client()?.text(&words).is_ok())
            })?;
        }
        cluster.wait_for_peace()?;
        Ok(cluster)
    }

    pub fn addresses(&self) -> Vec<SocketAddr> {
        self.nodes.iter().map(|node| node.home.address).collect()
    }

    pub fn client(&self, node: usize) -> Result<Client> {
        self.nodes[node].server.client()
    }

    /// The primary of a shard, and its replica.
    pub fn pair(&self, shard: usize) -> Result<(usize, usize)> {
        let view = self.view(0)?.context("it knows of all")?;
        let primary = view.owners[first_slot(shard)];
        let replica = view.primary_of.iter().position(|of| *of == Some(primary));
        Ok((primary, replica.context("it has a replica")?))
    }

    pub fn is_primary(&self, node: usize) -> Result<bool> {
        Ok(self.nodes[node].ask(&["INFO", "replication"])?.contains("role:master"))
    }

    pub fn strike(&mut self, victim: usize, fault: Fault) -> Result<()> {
        match fault {
            Fault::Killed => self.nodes[victim].server.kill(),
            Fault::Stopped => self.nodes[victim].server.signal("-STOP")?,
            Fault::CutOff => others(victim).try_for_each(|other| network::cut(victim, other))?,
        }
        Ok(())
    }

    pub fn mend(&mut self, victim: usize, fault: Fault) -> Result<()> {
        let node = &mut self.nodes[victim];
        match fault {
            Fault::Killed => node.server = Server::start_in(&node.launch, &node.home)?,
            Fault::Stopped => node.server.signal("-CONT")?,
            Fault::CutOff => others(victim).try_for_each(|other| network::mend(victim, other))?,
        }
        Ok(())
    }

    /// Returns once all nodes say the same of all slots and of each other, and replicas are linked.
    pub fn wait_for_peace(&self) -> Result<()> {
        let why = RefCell::new(String::new());
        let is_peace = || {
            *why.borrow_mut() = self.quarrel()?.unwrap_or_default();
            Ok(why.borrow().is_empty())
        };
        wait_until("all nodes agree", is_peace).with_context(|| why.borrow().clone())
    }

    /// What is not yet as it is to be.
    fn quarrel(&self) -> Result<Option<String>> {
        let mut views = Vec::new();
        for node in 0..NODES {
            let Some(view) = self.view(node)? else {
                return Ok(Some(format!(
                    "node {node} says: {}",
                    self.nodes[node].ask(&["CLUSTER", "NODES"])?
                )));
            };
            if !self.nodes[node].ask(&["CLUSTER", "INFO"])?.contains("cluster_state:ok") {
                return Ok(Some(format!("node {node} says that the cluster is down")));
            }
            views.push(view);
        }
        if let Some(node) = views.iter().position(|view| *view != views[0]) {
            return Ok(Some(format!("nodes 0 and {node} say different things")));
        }
        let replicas: Vec<usize> =
            (0..NODES).filter(|node| views[0].primary_of[*node].is_some()).collect();
        if replicas.len() != NODES - PRIMARIES {
            return Ok(Some(format!("replicas are {replicas:?}")));
        }
        for replica in replicas {
            let info = self.nodes[replica].ask(&["INFO", "replication"])?;
            if !info.contains("master_link_status:up") {
                return Ok(Some(format!("node {replica} is not linked: {info}")));
            }
        }
        let primaries = (0..NODES).filter(|node| views[0].primary_of[*node].is_none());
        let mut epochs: Vec<u64> = primaries.map(|node| views[0].epochs[node]).collect();
        epochs.sort_unstable();
        epochs.dedup();
        Ok((epochs.len() != PRIMARIES).then(|| format!("two primaries at one of {epochs:?}")))
    }

    /// `None` while a node misses something, or thinks ill of somebody.
    fn view(&self, node: usize) -> Result<Option<View>> {
        let text = self.nodes[node].ask(&["CLUSTER", "NODES"])?;
        let known = |id: &str| self.nodes.iter().position(|node| node.id == id);
        let (mut primary_of, mut epochs) = (vec![None; NODES], vec![0; NODES]);
        let mut owners = vec![NODES; usize::from(SLOTS)];
        let mut lines = 0;
        for line in text.lines() {
            let words: Vec<&str> = line.split(' ').collect();
            let [id, _, flags, primary, _, _, epoch, link, slots @ ..] = &words[..] else {
                bail!("no line of a node: {line}");
            };
            let is_ill = flags.contains("fail") || flags.contains("handshake");
            let Some(at) = known(id).filter(|_| !is_ill && *link == "connected") else {
                return Ok(None);
            };
            lines += 1;
            primary_of[at] = known(primary);
            epochs[at] = epoch.parse()?;
            for range in slots {
                let (first, last) = range.split_once('-').unwrap_or((range, range));
                owners[first.parse::<usize>()?..=last.parse()?].fill(at);
            }
        }
        let is_whole = lines == NODES && owners.iter().all(|owner| *owner < NODES);
        Ok(is_whole.then_some(View { primary_of, owners, epochs }))
    }

    /// Returns once replicas have the data of their primaries, which nobody changes meanwhile.
    pub fn wait_until_equal(&self) -> Result<()> {
        let digest = |node: usize| self.nodes[node].ask(&["DEBUG", "DIGEST"]);
        for shard in 0..PRIMARIES {
            let (primary, replica) = self.pair(shard)?;
            let is_equal = || Ok(digest(primary)? == digest(replica)?);
            let (theirs, ours) = (self.mix.makers[primary], self.mix.makers[replica]);
            wait_until("their data is equal", is_equal)
                .with_context(|| format!("{replica} ({ours:?}) of {primary} ({theirs:?})"))?;
        }
        Ok(())
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        self.nodes.iter_mut().for_each(|node| node.server.kill());
        // What remains goes with this process.
        let _ = network::remove(NODES);
    }
}

impl Node {
    fn start(mix: &Mix, node: usize, program: &Program) -> Result<Node> {
        let (dir, home) = (Directory::new()?, network::join(node)?);
        let ip = home.address.ip().to_string();
        let mut options = vec!["--bind", &ip, "--protected-mode", "no", "--dir", dir.text()?];
        options.extend(["--cluster-enabled", "yes", "--cluster-node-timeout", NODE_TIMEOUT_MS]);
        options.extend(["--repl-diskless-sync-delay", "0", "--enable-debug-command", "yes"]);
        let launch = mix.launch(node, program, &options)?;
        let server = Server::start_in(&launch, &home)?;
        let mut node = Node { launch, home, server, id: String::new(), _dir: dir };
        node.id = node.ask(&["CLUSTER", "MYID"])?;
        Ok(node)
    }

    fn ask(&self, words: &[&str]) -> Result<String> {
        let words: Vec<&[u8]> = words.iter().map(|word| word.as_bytes()).collect();
        self.server.client()?.text(&words)
    }
}

/// As `redis-cli --cluster create` shares them out; no fault changes that.
fn first_slot(shard: usize) -> usize {
    (usize::from(SLOTS) * shard + PRIMARIES / 2) / PRIMARIES
}

/// Which shard has a slot.
pub fn shard_of(slot: u16) -> usize {
    (0..PRIMARIES).rev().find(|shard| first_slot(*shard) <= usize::from(slot)).unwrap_or(0)
}

fn others(node: usize) -> impl Iterator<Item = usize> {
    (0..NODES).filter(move |other| *other != node)
}
