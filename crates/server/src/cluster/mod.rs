//! A node of a cluster, as all threads see it: the state machine behind a lock, what it wants done,
//! and for each slot one word that says whether calls may simply run.
//!
//! Whoever changes something has the turn until the file is on the disk: before that no other node
//! hears of it. Who only looks does not wait for the disk, nor does who says that it waits for an
//! answer only: then a thread brings the change there, and the bus is silent until it has. What may
//! be lost with the power the same thread brings there a moment later. What is said to other nodes
//! is the bus's business (`bus`), what becomes of this server's data that of who has the gate
//! (`run/cluster.rs`).

pub mod file;
pub mod handovers;
pub mod hands;
pub mod in_flight;
pub mod routes;

use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Condvar, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use kvasir_cluster::grant::Grant;
use kvasir_cluster::options::Options;
use kvasir_cluster::output::{Action, Output};
use kvasir_cluster::slots::SlotSet;
use kvasir_cluster::state::Cluster;
use kvasir_cluster::view::Place;
use kvasir_config::Config;
use kvasir_config::cluster::SaveBehavior;
use kvasir_reactor::Waker;
use kvasir_structures::locks::lock;

use crate::log::{notice, warning};
use file::Keeper;
use handovers::Handovers;
use hands::Workforce;
use in_flight::InFlight;
use routes::Routes;

/// How often it is said that the file can't be written.
const WARN: Duration = Duration::from_secs(10);

/// A node of a cluster; lives as long as the process.
pub struct Node {
    /// Held by who changes the state, until the disk has it.
    turn: Mutex<()>,
    state: Mutex<Cluster>,
    pub routes: Routes,
    pub in_flight: InFlight,
    pub handovers: Handovers,
    /// Slots that others have by now, and of which there may be keys here.
    given_up: Mutex<SlotSet>,
    todo: Mutex<Todo>,
    bus: OnceLock<Waker>,
    keeper: Box<dyn Keeper>,
    /// Held by who writes the file; the state is read behind it, so that no older one comes last.
    pen: Mutex<()>,
    due: Mutex<Due>,
    lacks: Condvar,
    /// It goes on where the file can't be written: `cluster-config-save-behavior`.
    goes_on_unsaved: AtomicBool,
    /// Who works on slots that move.
    pub workforce: Box<dyn Workforce>,
}

/// What the file lacks.
#[derive(Default)]
struct Due {
    /// Something that may come later.
    soon: bool,
    /// How many changes nobody is told of before the disk has them, and how many it has.
    changes: u64,
    saved: u64,
    asked: Vec<Asked>,
    /// When it was last said that the file can't be written; none: it could.
    warned: Option<Instant>,
}

/// Who is to be told once the disk has a change, by its number.
struct Asked {
    change: u64,
    answer: Box<dyn FnOnce() + Send>,
}

impl Due {
    fn is_awaited(&self) -> bool {
        self.changes > self.saved
    }

    /// The disk has so many changes: who waits for them?
    fn reach(&mut self, changes: u64) -> Vec<Asked> {
        self.saved = changes;
        let (reached, rest) =
            std::mem::take(&mut self.asked).into_iter().partition(|each| each.change <= changes);
        self.asked = rest;
        reached
    }
}

/// What is yet to be done outside of the state machine.
#[derive(Default)]
pub struct Todo {
    /// By the bus: what goes over links, or has come for subscribers.
    pub links: Vec<Action>,
    /// By who has the gate closed.
    pub server: Vec<Action>,
    /// The routes may be others now.
    pub routes_changed: bool,
}

impl Node {
    pub fn new(cluster: Cluster, keeper: Box<dyn Keeper>, workforce: Box<dyn Workforce>) -> Node {
        let handovers = Handovers::default();
        if cluster.me().is_primary() {
            // Whose they are is to be found out first.
            handovers.hold(&cluster.granted(), true);
        }
        Node {
            turn: Mutex::new(()),
            state: Mutex::new(cluster),
            routes: Routes::default(),
            in_flight: InFlight::default(),
            handovers,
            given_up: Mutex::default(),
            todo: Mutex::new(Todo { routes_changed: true, ..Todo::default() }),
            bus: OnceLock::new(),
            keeper,
            pen: Mutex::new(()),
            due: Mutex::default(),
            lacks: Condvar::new(),
            goes_on_unsaved: AtomicBool::new(false),
            workforce,
        }
    }

    /// The state, for who only looks.
    pub fn look(&self) -> MutexGuard<'_, Cluster> {
        lock(&self.state)
    }

    /// Changes the state, and brings what has to be on the disk there.
    pub fn change<R>(&self, change: impl FnOnce(&mut Cluster) -> R) -> R {
        self.apply(change, false).0
    }

    /// As `change`, but leaves the disk to a thread where nothing else than the bus has to wait for
    /// it: then returns the number of the change, for `when_saved`.
    pub fn change_late<R>(&self, change: impl FnOnce(&mut Cluster) -> R) -> (R, Option<u64>) {
        self.apply(change, true)
    }

    fn apply<R>(
        &self,
        change: impl FnOnce(&mut Cluster) -> R,
        may_be_late: bool,
    ) -> (R, Option<u64>) {
        let turn = lock(&self.turn);
        let mut cluster = lock(&self.state);
        let result = change(&mut cluster);
        let Output { saves, saves_soon, changed, actions, notes } = cluster.take_output();
        drop(cluster);
        let (links, server): (Vec<_>, Vec<_>) = actions.into_iter().partition(is_of_bus);
        // What is done to the data comes behind the file.
        let is_late = saves && may_be_late && server.is_empty();
        let number = self.note_due(saves_soon, is_late);
        if saves && !is_late {
            self.end_unless(self.save());
        }
        let mut todo = lock(&self.todo);
        todo.routes_changed |= changed;
        todo.links.extend(links);
        todo.server.extend(server);
        drop(todo);
        drop(turn);
        notes.iter().for_each(|text| notice!("{text}"));
        (result, number)
    }

    /// Has the thread write the file; the number of a change that the bus waits for.
    fn note_due(&self, is_soon: bool, is_awaited: bool) -> Option<u64> {
        let mut due = lock(&self.due);
        due.soon |= is_soon;
        due.changes += u64::from(is_awaited);
        if is_soon || is_awaited {
            self.lacks.notify_one();
        }
        is_awaited.then_some(due.changes)
    }

    /// Calls back once the disk has a change of `change_late`.
    pub fn when_saved(&self, change: u64, answer: Box<dyn FnOnce() + Send>) {
        let mut due = lock(&self.due);
        if due.saved < change {
            due.asked.push(Asked { change, answer });
        } else {
            drop(due);
            answer();
        }
    }

    /// Takes over what the configuration says of this node.
    pub fn obey(&self, config: &Config) {
        let goes_on = config.cluster.save_behavior == SaveBehavior::BestEffort;
        self.goes_on_unsaved.store(goes_on, Relaxed);
        let options = options(config);
        let is_new = self.look().options != options;
        if is_new {
            self.change(|cluster| cluster.set_options(options));
            self.wake();
        }
    }

    /// What is to be done with the gate closed, and whether slots may have changed hands.
    pub fn take_server_todo(&self) -> (Vec<Action>, bool) {
        let mut todo = lock(&self.todo);
        (std::mem::take(&mut todo.server), std::mem::take(&mut todo.routes_changed))
    }

    /// None while the disk lacks what they may tell.
    pub fn take_link_actions(&self) -> Vec<Action> {
        let mut todo = lock(&self.todo);
        // Behind that lock: who has brought some has said before that they are to wait.
        if lock(&self.due).is_awaited() {
            return Vec::new();
        }
        std::mem::take(&mut todo.links)
    }

    /// Whether there is something for who has the gate.
    pub fn has_todo(&self) -> bool {
        let mut todo = lock(&self.todo);
        if !todo.server.is_empty() {
            return true;
        }
        // Most changes are about other things.
        todo.routes_changed = todo.routes_changed && {
            drop(todo);
            let differ = self.routes.differ(&self.look(), &self.handovers.held());
            todo = lock(&self.todo);
            differ
        };
        todo.routes_changed || !todo.server.is_empty()
    }

    /// Writes the file. An error is for who has asked for it.
    pub fn save(&self) -> std::io::Result<()> {
        let _pen = lock(&self.pen);
        self.write()
    }

    /// Returns once the disk has all that has been changed so far.
    pub fn save_late(&self) {
        let _pen = lock(&self.pen);
        if self.lacks_save() {
            self.end_unless(self.write());
        }
    }

    /// Whether the file lacks something.
    pub fn lacks_save(&self) -> bool {
        let due = lock(&self.due);
        due.soon || due.is_awaited()
    }

    /// Blocks until the file lacks something that is waited for, or has lacked something for so
    /// long.
    pub fn wait_for_late(&self, gather: Duration) {
        let mut due = lock(&self.due);
        while !due.soon && !due.is_awaited() {
            due = self.lacks.wait(due).unwrap_or_else(PoisonError::into_inner);
        }
        // Who panics with it has changed nothing by halves.
        let _ = self.lacks.wait_timeout_while(due, gather, |due| !due.is_awaited());
    }

    /// To be called by who has the pen.
    fn write(&self) -> std::io::Result<()> {
        let (was_due, changes) = {
            let mut due = lock(&self.due);
            (std::mem::take(&mut due.soon), due.changes)
        };
        let file = self.look().file();
        let kept = self.keeper.keep(&file);
        let goes_on = self.goes_on_unsaved.load(Relaxed);
        let mut due = lock(&self.due);
        if let Err(error) = &kept {
            // What is not there yet is still to come.
            due.soon |= was_due || goes_on;
            if !goes_on {
                return kept;
            }
            self.warn(&mut due, error);
        } else if due.warned.take().is_some() {
            notice!("the cluster's file is written again path={}", self.keeper.path().display());
        }
        let was_awaited = due.saved < changes;
        let reached = due.reach(changes);
        drop(due);
        reached.into_iter().for_each(|asked| (asked.answer)());
        if was_awaited {
            self.wake();
        }
        kept
    }

    /// Says now and then that the disk does not have what others are told.
    fn warn(&self, due: &mut Due, error: &std::io::Error) {
        if due.warned.is_none_or(|warned| warned.elapsed() >= WARN) {
            due.warned = Some(Instant::now());
            let path = self.keeper.path().display();
            warning!("can't write the cluster's file: the node goes on path={path} error={error}");
        }
    }

    /// Ends the process if the file could not be written, unless it is to go on.
    fn end_unless(&self, result: std::io::Result<()>) {
        if let Err(error) = result
            && !self.goes_on_unsaved.load(Relaxed)
        {
            // What others would be told, the next start would not know.
            let path = self.keeper.path().display();
            warning!("can't write the cluster's file path={path} error={error}");
            std::process::exit(1);
        }
    }

    /// Keys of these slots are another's.
    pub fn give_up(&self, slots: Vec<u16>) {
        let mut given_up = lock(&self.given_up);
        slots.into_iter().for_each(|slot| {
            given_up.insert(slot);
        });
    }

    /// Slots that were granted to another node, and nobody asks that one whose they are.
    pub fn unasked(&self) -> Vec<Grant> {
        let cluster = self.look();
        if cluster.me().is_replica() || cluster.grants().is_empty() {
            return Vec::new();
        }
        let jobs = self.handovers.jobs();
        let is_asked =
            |grant: &&Grant| jobs.iter().any(|job| job.name == grant.job && !job.stage().is_last());
        cluster.grants().iter().filter(|grant| !is_asked(grant)).cloned().collect()
    }

    /// Whether calls about a slot are put off, since it is being handed over.
    #[inline]
    pub fn holds(&self, slot: u16) -> bool {
        self.handovers.holds_any() && self.handovers.held().contains(slot)
    }

    /// As `take_back`, of all of these that were given up.
    pub fn take_given_up(&self, slots: &SlotSet) -> Vec<u16> {
        let mut given_up = lock(&self.given_up);
        slots.iter().filter(|slot| given_up.remove(*slot)).collect()
    }

    /// A slot that was given up, and is another's still; none is on its way back while the gate is
    /// open.
    pub fn given_up(&self) -> Option<u16> {
        lock(&self.given_up).iter().next()
    }

    /// There is no key left of a slot that was given up.
    pub fn has_given_up(&self, slot: u16) {
        lock(&self.given_up).remove(slot);
    }

    /// Slots that were given up and whose keys have to go at once: keys come that belong there. To
    /// be asked for with the gate closed.
    pub fn take_back(&self, takes_all: bool) -> Vec<u16> {
        let mut given_up = lock(&self.given_up);
        if given_up.is_empty() {
            return Vec::new();
        }
        let cluster = self.look();
        let is_another =
            |slot: u16| matches!(cluster.place(slot), Place::Elsewhere(_) | Place::Unbound);
        let taken: Vec<u16> =
            given_up.iter().filter(|slot| takes_all || !is_another(*slot)).collect();
        taken.iter().for_each(|slot| {
            given_up.remove(*slot);
        });
        taken
    }

    pub fn set_bus(&self, waker: Waker) {
        // There is one bus, which says so once.
        let _ = self.bus.set(waker);
    }

    /// Has the bus look what there is to do.
    pub fn wake(&self) {
        if let Some(waker) = self.bus.get() {
            waker.wake();
        }
    }
}

fn is_of_bus(action: &Action) -> bool {
    matches!(
        action,
        Action::Connect { .. } | Action::Send { .. } | Action::Close(_) | Action::Publish { .. }
    )
}

/// What the configuration says of this node.
pub fn options(config: &Config) -> Options {
    let of = &config.cluster;
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let or = |announced: u16, own: u16| if announced == 0 { own } else { announced };
    Options {
        node_timeout_ms: of.node_timeout,
        port: or(of.announce_port, config.port),
        tls_port: or(of.announce_tls_port, config.tls.port),
        bus_port: or(of.announce_bus_port, config.bus_port().unwrap_or(0)),
        is_tls: config.tls.cluster,
        replicates_over_tls: config.tls.replication,
        announce_ip: text(&of.announce_ip),
        hostname: text(&of.announce_hostname),
        nodename: text(&of.announce_nodename),
        requires_full_coverage: of.requires_full_coverage,
        allows_replica_migration: of.allows_replica_migration,
        migration_barrier: of.migration_barrier,
        is_no_failover: of.replica_no_failover,
        replica_validity_factor: of.replica_validity_factor,
        repl_ping_period_ms: config.replication.ping_period.saturating_mul(1000),
        manual_failover_timeout_ms: of.manual_failover_timeout,
        blacklist_ttl_ms: of.blacklist_ttl.saturating_mul(1000),
    }
}
