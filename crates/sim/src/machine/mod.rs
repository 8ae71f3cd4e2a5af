//! One server on its machine: what the program does with threads, step by step.

mod crew;
mod follower;
mod log;

use std::cell::Cell;
use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use std::rc::Rc;

use kvasir_config::Config;
use kvasir_config::load::Loaded;
use kvasir_persistence::snapshot::Entrance;
use kvasir_reactor::sim::Network;
use kvasir_reactor::{Listener, Reactor, clock};
use kvasir_server::bus::Bus;
use kvasir_server::cluster::Node;
use kvasir_server::cluster::file::{self, Keeper, Kept};
use kvasir_server::commands;
use kvasir_server::net::listen::{ListenerKind, Open};
use kvasir_server::net::tls::context::Endpoint;
use kvasir_server::run::worker::Worker;
use kvasir_server::start::{assemble, claim_loaded, follow_as_configured};
use kvasir_server::state::shared::Shared;
use kvasir_server::store::replication::sync;
use kvasir_server::store::{Facts, random_id};

use crate::disk::SimDisk;
use crate::luck::Luck;
use crew::{Begun, Crew};
use follower::Follower;
use log::Log;

/// Who loads.
const WORKER: usize = 0;
/// Tables of one process share it.
const HASH_SEED: u64 = 7;
/// Memory in use, which is not a world's own.
const USED_BYTES: usize = 1 << 20;

/// A server that runs.
pub struct Server {
    pub shared: &'static Shared,
    workers: Vec<Option<Box<Worker>>>,
    log: Log,
    follower: Follower,
    /// Of a node of a cluster.
    bus: Option<Bus>,
    crew: Crew,
}

/// A fault that is planted: who follows asks for the stream from this offset on, whatever it has.
pub type Elsewhere = Rc<Cell<u64>>;

/// Who of a server can do a step.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Part {
    Worker(usize),
    Log,
    /// Who follows a primary.
    Follower,
    /// Who takes snapshots for replicas.
    Sync,
    Bus,
    /// Who brings late changes to nodes.conf.
    NodesFile,
    /// Who moves slots.
    Member(usize),
}

/// Where a server stands in the network.
#[derive(Clone)]
pub struct Host {
    pub network: Network,
    pub ip: IpAddr,
    pub port: u16,
    pub workers: usize,
}

impl Server {
    /// Starts on what the disk has.
    pub fn start(
        host: &Host,
        disk: &SimDisk,
        config: Config,
        fault: Option<Elsewhere>,
    ) -> Result<Server, String> {
        let Host { network, ip, port, workers } = host;
        let reactors: Vec<_> = (0..*workers).map(|_| Reactor::simulated(network, *ip)).collect();
        let loaded = Loaded {
            config,
            ignored: Vec::new(),
            renames: Vec::new(),
            users: Vec::new(),
            metrics_user: None,
        };
        let access = kvasir_acl::start::prepare(commands::table(), &loaded)?;
        let config = loaded.config;
        let tls = Endpoint::new(&config.tls)?;
        let wakers = reactors.iter().map(Reactor::waker).collect();
        let facts = facts(&config)?;
        let begun = Begun::default();
        let node = config.cluster.enabled.then(|| open_node(&config, disk, &begun)).transpose()?;
        let bus_port = config.bus_port();
        let shared = assemble(config, facts, access, tls, wakers, node);
        follow_as_configured(shared);
        let bus = shared.cluster.as_ref().zip(bus_port).map(|(node, port)| {
            let reactor = Reactor::simulated(network, *ip);
            node.set_bus(reactor.waker());
            let listener = Listener::simulated(network, SocketAddr::new(*ip, port));
            Bus::new(shared, node, reactor, vec![listener])
        });
        let log = Log::open(shared, disk)?;
        if let Some(node) = &shared.cluster {
            claim_loaded(shared, node);
        }
        let start =
            |(index, reactor)| Some(Worker::new(index, shared, commands::numbered(), reactor));
        let mut workers: Vec<_> = reactors.into_iter().enumerate().map(start).collect();
        let listener = Listener::simulated(network, SocketAddr::new(*ip, *port));
        let first = workers[0].as_mut().expect("it has just been made");
        first.listen(Open { listener, kind: ListenerKind::Client, number: 0 });
        let follower = Follower::new(shared, network, *ip, fault);
        let crew = Crew::new(network, *ip, begun);
        Ok(Server { shared, workers, log, follower, bus, crew })
    }

    /// When each part has something to do, of those that have.
    pub fn dues(&mut self) -> Vec<(u64, Part)> {
        let due = |worker: &Option<Box<Worker>>| {
            worker.as_ref().and_then(|worker| worker.reactor.due_ns())
        };
        let workers = self.workers.iter().map(due).enumerate();
        let mut dues: Vec<_> = workers.map(|(index, ns)| (ns, Part::Worker(index))).collect();
        dues.push((self.log.due_ns(), Part::Log));
        dues.push((self.follower.due_ns(), Part::Follower));
        dues.push((sync::is_wanted(self.shared).then_some(0), Part::Sync));
        if let Some(bus) = &self.bus {
            dues.push((bus.reactor.due_ns(), Part::Bus));
        }
        if let Some(node) = &self.shared.cluster {
            dues.push((node.lacks_save().then_some(0), Part::NodesFile));
        }
        let crew = self.crew.dues().into_iter().enumerate();
        dues.extend(crew.map(|(index, ns)| (ns, Part::Member(index))));
        dues.into_iter().filter_map(|(ns, part)| Some((ns?, part))).collect()
    }

    pub fn step(&mut self, part: Part) -> Result<(), String> {
        match part {
            Part::Worker(index) => self.step_worker(index)?,
            Part::Log => self.log.step()?,
            Part::Follower => self.follower.step(),
            Part::Sync => {
                let entrance = Entrance::Inside(&mut self.shared.gate.exclusive());
                sync::take(self.shared, entrance).map_err(|error| error.to_string())?;
            }
            Part::Bus => {
                let bus = self.bus.as_mut().expect("it has a bus");
                bus.turn().map_err(|error| format!("the bus fails: {error}"))?;
            }
            Part::NodesFile => self.shared.cluster.iter().for_each(Node::save_late),
            Part::Member(index) => self.crew.step(index),
        }
        Ok(())
    }

    fn step_worker(&mut self, index: usize) -> Result<(), String> {
        let worker = self.workers[index].take().expect("it is here between steps");
        let worker = worker.step().map_err(|error| format!("a worker fails: {error}"))?;
        self.workers[index] = Some(worker);
        Ok(())
    }
}

/// The node that the disk tells of.
fn open_node(config: &Config, disk: &SimDisk, begun: &Begun) -> Result<Node, String> {
    let path = PathBuf::from(&config.cluster.file);
    let found = disk.after(Luck::KILLED);
    let text =
        found.get(&path).map_or(String::new(), |bytes| String::from_utf8_lossy(bytes).into());
    let cluster = file::read(&text, config, &path)?;
    let kept = Kept { disk: disk.clone(), path, claim: None };
    kept.keep(&cluster.file()).map_err(|error| error.to_string())?;
    Ok(Node::new(cluster, Box::new(kept), Box::new(begun.clone())))
}

fn facts(config: &Config) -> Result<Facts, String> {
    Ok(Facts {
        run_id: random_id().map_err(|error| error.to_string())?,
        identity: "simulated".into(),
        started_ms: clock::now_unix_ms(),
        backend: "sim".into(),
        executable: String::new(),
        config_file: String::new(),
        start_dir: PathBuf::new(),
        users_of_arguments: Vec::new(),
        hash_seed: HASH_SEED,
        maxclients: config.maxclients as usize,
        used_bytes: || USED_BYTES,
    })
}
