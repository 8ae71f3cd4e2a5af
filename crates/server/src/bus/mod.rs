//! The bus of a cluster: one thread with a reactor of its own, which listens for other nodes,
//! connects to them, cuts what comes into packets for the state machine, and sends what that says.
//!
//! It decides nothing. What concerns this server's data is done with the gate closed, before
//! anybody else hears of it.

mod links;

use std::io;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::mpsc;
use std::time::Duration;

use kvasir_cluster::options::Local;
use kvasir_cluster::tick::PERIOD_MS;
use kvasir_config::tls::TlsConfig;
use kvasir_reactor::{Event, Listener, Options, Reactor, clock};

use crate::bus::links::Links;
use crate::cluster::Node;
use crate::handover::grants::resume;
use crate::log::warning;
use crate::net::listen;
use crate::net::tls::peer::Contexts;
use crate::run::cluster::settle;
use crate::state::shared::Shared;
use crate::store::replication::upstream::Stage;

/// For so long changes that may come late gather, to be one write of the file.
const GATHER: Duration = Duration::from_millis(100);
/// Whoever is inside the gate is waited for no longer at a time.
const GATE_PATIENCE_NS: u64 = 20_000_000;

/// Opens what the bus listens at; to be done before the server says that it is there.
pub fn open(config: &kvasir_config::Config) -> Result<Vec<Listener>, String> {
    if config.tls.cluster {
        Contexts::new(&config.tls)?;
    }
    let port = config.bus_port().ok_or(
        "Redis port number too high for cluster mode. Cluster bus port number must be lower than \
         65535. Please use another port number, or set cluster-port.",
    )?;
    let mut listeners = Vec::new();
    for (address, is_optional) in listen::addresses(&config.bind_addresses(), port)? {
        match Listener::tcp(address, listen::backlog(config)) {
            Ok(listener) => listeners.push(listener),
            Err(_) if is_optional => {}
            Err(error) => {
                return Err(format!(
                    "Failed listening on port {port} (cluster), aborting. {error}"
                ));
            }
        }
    }
    Ok(listeners)
}

/// Starts the thread, and that which writes the file; they end with the process.
pub fn start(
    shared: &'static Shared,
    node: &'static Node,
    listeners: Vec<Listener>,
) -> io::Result<()> {
    let (tell, ready) = mpsc::channel();
    let run = move || {
        let reactor = match Reactor::new(&Options::default()) {
            Ok(reactor) => reactor,
            Err(error) => {
                let _ = tell.send(Err(error));
                return;
            }
        };
        node.set_bus(reactor.waker());
        let _ = tell.send(Ok(()));
        Bus::new(shared, node, reactor, listeners).run();
    };
    std::thread::Builder::new().name("bus".into()).spawn(run)?;
    // Other nodes want to be answered while the disk takes its time.
    std::thread::Builder::new().name("nodes-file".into()).spawn(move || {
        loop {
            node.wait_for_late(GATHER);
            node.save_late();
        }
    })?;
    ready.recv().unwrap_or_else(|_| Err(io::Error::other("the bus ended at its start")))
}

/// What the thread does, turn by turn; a simulated world does without the thread.
pub struct Bus {
    shared: &'static Shared,
    node: &'static Node,
    pub reactor: Reactor,
    events: Vec<Event>,
    links: Links,
    /// By the clock that nobody sets.
    next_tick_ns: u64,
    config_version: u64,
    /// What its links are made with.
    tls: TlsConfig,
}

impl Bus {
    pub fn new(
        shared: &'static Shared,
        node: &'static Node,
        mut reactor: Reactor,
        listeners: Vec<Listener>,
    ) -> Bus {
        listeners.into_iter().for_each(|listener| {
            reactor.listen(listener);
        });
        let mut bus = Bus {
            shared,
            node,
            reactor,
            events: Vec::new(),
            links: Links::default(),
            next_tick_ns: 0,
            config_version: 0,
            tls: TlsConfig::default(),
        };
        bus.obey(&shared.config().tls);
        bus
    }

    fn run(mut self) {
        while !self.shared.is_stopping.load(Relaxed) {
            if let Err(error) = self.turn() {
                warning!("the bus fails, and with it this node of the cluster: {error}");
                std::process::exit(1);
            }
        }
    }

    /// Waits for what comes, or for the next tick, and does what follows from it.
    pub fn turn(&mut self) -> io::Result<()> {
        let wait_ns = self.next_tick_ns.saturating_sub(clock::monotonic_ns());
        let wait = Duration::from_millis(wait_ns.div_ceil(1_000_000));
        let mut events = std::mem::take(&mut self.events);
        let waited = self.reactor.wait(Some(wait), &mut events);
        self.shared.debugging.wait_while_asleep();
        events.drain(..).for_each(|event| self.take_event(event));
        self.events = events;
        waited?;
        let now_ms = clock::now_unix_ms();
        if clock::monotonic_ns() >= self.next_tick_ns {
            self.next_tick_ns = clock::monotonic_ns() + PERIOD_MS * 1_000_000;
            self.tick(now_ms);
        }
        self.settle(now_ms);
        let (shared, node) = (self.shared, self.node);
        node.unasked().into_iter().for_each(|grant| resume(shared, node, grant));
        self.links.act(&mut self.reactor, self.node, self.shared);
        Ok(())
    }

    fn take_event(&mut self, event: Event) {
        match event {
            Event::Accepted { socket, .. } => {
                self.links.accept(&mut self.reactor, self.node, socket);
            }
            Event::AcceptFailed { error, .. } => warning!("the bus can't accept: {error}"),
            Event::Connected { connection, result } => {
                self.links.connected(&mut self.reactor, self.node, connection, result.is_ok());
            }
            Event::Received { connection, buffer } => {
                let bytes = self.reactor.bytes(&buffer).to_vec();
                self.reactor.recycle(buffer);
                let is_sound = self.links.received(&mut self.reactor, connection, &bytes);
                self.links.read(&mut self.reactor, self.node, connection);
                if !is_sound {
                    self.links.lost(&mut self.reactor, self.node, connection);
                }
            }
            Event::Closed { connection, .. } => {
                self.links.lost(&mut self.reactor, self.node, connection);
            }
            Event::Sent { connection, payload, result } => {
                if result.is_err() {
                    self.links.lost(&mut self.reactor, self.node, connection);
                } else {
                    self.links.sent(&mut self.reactor, connection, payload);
                }
            }
            Event::Woken => {}
        }
    }

    fn tick(&mut self, now_ms: u64) {
        let version = self.shared.config_version();
        if version != self.config_version {
            self.config_version = version;
            let config = self.shared.config();
            self.obey(&config.tls);
            self.node.obey(&config);
        }
        let local = self.local(now_ms);
        self.node.change(|cluster| {
            cluster.set_local(local);
            cluster.tick(now_ms);
        });
    }

    /// Has new links speak TLS, or not, as the options say now.
    fn obey(&mut self, tls: &TlsConfig) {
        if self.tls == *tls {
            return;
        }
        self.tls = tls.clone();
        match tls.cluster.then(|| Contexts::new(tls)).transpose() {
            Ok(contexts) => self.links.tls = contexts,
            Err(error) => warning!("the bus goes on with the certificates that it has: {error}"),
        }
    }

    fn local(&self, now_ms: u64) -> Local {
        let upstream = &self.shared.replication.upstream;
        let since_ms = match upstream.stage() {
            Stage::Online => upstream.heard_ms.load(Relaxed),
            _ => upstream.down_since_ms.load(Relaxed),
        };
        Local {
            offset: match self.shared.keyspace.log.end() {
                // Nobody is to read from what is being replaced, or to elect it.
                _ if upstream.gets_snapshot() => 0,
                // Which is not to be said of a replica of a primary that has written nothing.
                0 if upstream.is_replica() => 1,
                end => end,
            },
            data_age_ms: now_ms.saturating_sub(since_ms),
            // Who needs to know looks when it does.
            has_keys: false,
        }
    }

    /// Does what concerns the data.
    fn settle(&self, now_ms: u64) {
        let (shared, node) = (self.shared, self.node);
        if !node.has_todo() {
            return;
        }
        // While a script runs that can wait: other nodes, who want to be answered, cannot.
        let since_ns = clock::monotonic_ns();
        let is_late = || clock::monotonic_ns().saturating_sub(since_ns) > GATE_PATIENCE_NS;
        let alone = shared.gate.exclusive_unless(|| shared.keyspace.busy.is_busy() || is_late());
        if let Some(mut alone) = alone {
            settle(shared, node, &mut alone, now_ms);
        }
    }
}
