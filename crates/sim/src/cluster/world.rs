//! The world of one run: who does the next step, what time it is, and what goes wrong.

use std::net::IpAddr;

use kvasir_keyspace::rng::Rng;
use kvasir_reactor::sim::Network;
use kvasir_reactor::{clock, random};
use kvasir_resp::encode::encode_request;
use kvasir_structures::crc16::slot_of;

use super::client::{Client, Done};
use super::history::{Call, check};
use super::moves::{Plan, Victim, Watch};
use super::nodes::{Nodes, Step};
use super::{Ran, Setup};
use crate::connection::Connection;
use crate::luck::Luck;
use crate::machine::Part;

const CLIENTS: usize = 3;
const KEYS: usize = 5;
/// Until primaries that have just started serve anybody.
const DAWN_NS: u64 = 2_800_000_000;
/// For so long things go wrong, ...
const STORM_NS: u64 = 9_000_000_000;
/// ...one of them within so long.
const DISTURB_NS: usize = 600_000_000;
/// Who has crashed starts again within so long.
const DOWN_NS: usize = 2_500_000_000;
/// A process that is stopped goes on within so long.
const STOP_NS: usize = 1_500_000_000;
/// A cluster that was split just when slots have moved stays so for up to so much longer.
const SPLIT_NS: usize = 3_000_000_000;
/// One of so many steps that write files has power go meanwhile.
const CUT_ONE_IN: usize = 4_000;
/// What a step takes, at most.
const STEP_NS: usize = 20_000;
/// Within so long all are well, once all is mended.
const PEACE_NS: u64 = 60_000_000_000;
const LOOK_NS: u64 = 500_000_000;
/// Of an administrator whose answers do not matter.
const ORDERS_MAX: usize = 8;

const ADMIN: IpAddr = IpAddr::V4(std::net::Ipv4Addr::new(10, 0, 2, 1));

pub struct World {
    rng: Rng,
    now_ns: u64,
    network: Network,
    nodes: Nodes,
    clients: Vec<Client>,
    keys: Vec<String>,
    calls: Vec<Vec<Call>>,
    orders: Vec<Connection>,
    held_up: Vec<(IpAddr, IpAddr)>,
    watch: Watch,
    next_ns: u64,
    is_stormy: bool,
    dues: Vec<(u64, usize, Step)>,
    primaries: Vec<usize>,
    ran: Ran,
}

/// Who can do a step.
#[derive(Clone, Copy)]
enum Actor {
    Node(usize, Step),
    Client(usize),
    /// Somebody looks at the clock.
    Nobody,
}

impl World {
    pub fn new(setup: Setup) -> World {
        let seed = setup.seed.wrapping_add(1).wrapping_mul(0xd134_2543_de82_ef95);
        let mut rng = Rng::new(seed);
        random::simulate(rng.draw());
        clock::simulate(1);
        let network = Network::new(rng.draw());
        let nodes = Nodes::new(setup, &network, &mut rng);
        let count = nodes.count();
        World {
            now_ns: 1,
            network,
            nodes,
            clients: (0..CLIENTS).map(|number| Client::new(number, count, KEYS)).collect(),
            keys: (0..KEYS).map(|key| format!("key{}", key * 7)).collect(),
            calls: vec![Vec::new(); KEYS],
            orders: Vec::new(),
            held_up: Vec::new(),
            watch: Watch::new(None),
            next_ns: 0,
            is_stormy: false,
            dues: Vec::new(),
            primaries: Vec::new(),
            ran: Ran::default(),
            rng,
        }
    }

    /// For who reads the log of a world.
    fn say(&self, what: impl Fn() -> String) {
        if !crate::is_quiet() {
            println!("---- {} us: {}", self.now_ns / 1000, what());
        }
    }

    pub fn run(mut self) -> Result<Ran, String> {
        let name = |(node, id)| format!("server {node} is {id}");
        self.say(|| self.nodes.ids.iter().enumerate().map(name).collect::<Vec<_>>().join("; "));
        while self.now_ns < DAWN_NS {
            self.step(DAWN_NS, true)?;
        }
        self.primaries = self.nodes.primaries();
        self.is_stormy = true;
        let end_ns = self.now_ns + STORM_NS + self.rng.below(STORM_NS as usize) as u64;
        while self.now_ns < end_ns {
            if self.now_ns >= self.next_ns {
                self.disturb();
                self.next_ns = self.now_ns + self.rng.below(DISTURB_NS) as u64;
            }
            self.end_movers();
            self.step(self.next_ns, true)?;
        }
        self.mend()?;
        self.judge()?;
        self.nodes.compare()?;
        Ok(self.ran)
    }

    /// What goes wrong, and what an administrator does.
    fn disturb(&mut self) {
        self.count_reigns();
        let count = self.nodes.count();
        let (node, other) = (self.rng.below(count), self.rng.below(count));
        match self.rng.below(16) {
            0..2 => self.crash(node, None),
            2 => self.hold_up(self.nodes.ip(node), self.nodes.ip(other)),
            3 => self.cut_off(node),
            4..7 => self.release(),
            7 => {
                let client = self.clients[self.rng.below(CLIENTS)].ip();
                let peer = if self.rng.below(2) == 0 { client } else { self.nodes.ip(other) };
                self.network.reset(self.nodes.ip(node), peer);
            }
            8 => {
                let until_ns = self.now_ns + self.rng.below(STOP_NS) as u64;
                self.say(|| format!("server {node} stops until {} us", until_ns / 1000));
                self.nodes.stop_until(node, until_ns);
            }
            9 => self.nodes.set_clock(node, &mut self.rng),
            10 => {
                let words: &[&str] = match self.rng.below(3) {
                    0 => &["CLUSTER", "FAILOVER", "FORCE"],
                    _ => &["CLUSTER", "FAILOVER"],
                };
                self.order(node, words);
            }
            11..15 => self.move_slots(),
            _ => {}
        }
    }

    fn count_reigns(&mut self) {
        let now = self.nodes.primaries();
        self.ran.reigns += now.iter().filter(|node| !self.primaries.contains(node)).count() as u64;
        self.primaries = now;
    }

    fn hold_up(&mut self, one: IpAddr, other: IpAddr) {
        self.say(|| format!("nothing arrives between {one} and {other}"));
        self.network.hold_up(one, other, true);
        self.held_up.push((one, other));
    }

    /// Nothing arrives at a server; what clients say may.
    fn cut_off(&mut self, node: usize) {
        let ip = self.nodes.ip(node);
        (0..self.nodes.count())
            .filter(|other| *other != node)
            .for_each(|other| self.hold_up(ip, self.nodes.ip(other)));
        if self.rng.below(2) == 0 {
            for client in 0..CLIENTS {
                self.hold_up(ip, self.clients[client].ip());
            }
        }
    }

    fn release(&mut self) {
        self.say(|| "all arrives again".into());
        for (one, other) in std::mem::take(&mut self.held_up) {
            self.network.hold_up(one, other, false);
            if self.rng.below(2) == 0 {
                self.network.reset(one, other);
            }
        }
    }

    fn crash(&mut self, node: usize, luck: Option<Luck>) {
        if !self.nodes.is_up(node) {
            return;
        }
        let luck = luck.unwrap_or_else(|| match self.rng.below(2) {
            0 => Luck::KILLED,
            _ => Luck::of_a_cut(&mut self.rng),
        });
        self.say(|| format!("server {node} crashes: {luck:?}"));
        self.ran.digest.note(200 + node as u64);
        let start_ns = self.now_ns + self.rng.below(DOWN_NS) as u64;
        self.nodes.crash(node, luck, start_ns);
        self.ran.crashes += 1;
    }

    /// Tells a server something; what it answers nobody looks at.
    fn order(&mut self, node: usize, words: &[&str]) {
        self.say(|| format!("server {node} is told {}", words.join(" ")));
        let connection = Connection::open(&self.network, ADMIN, self.nodes.places[node]);
        connection.send(&encode_request(words));
        if self.orders.len() == ORDERS_MAX {
            self.orders.remove(0);
        }
        self.orders.push(connection);
    }

    /// Slots of some key go to another primary.
    fn move_slots(&mut self) {
        let slot = slot_of(self.keys[self.rng.below(KEYS)].as_bytes());
        let primaries = self.nodes.primaries();
        let owner = primaries.iter().copied().find(|node| {
            let cluster = self.nodes.shared(*node).and_then(|shared| shared.cluster.as_ref());
            cluster.is_some_and(|cluster| cluster.look().me().slots.contains(slot))
        });
        let Some(owner) = owner else { return };
        let target = primaries[self.rng.below(primaries.len())];
        let of_owner = |slot: u16| {
            let cluster = self.nodes.shared(owner).and_then(|shared| shared.cluster.as_ref());
            cluster.is_some_and(|cluster| cluster.look().me().slots.contains(slot))
        };
        let reach = self.rng.below(200) as u16;
        let first =
            (slot.saturating_sub(reach)..=slot).rev().take_while(|slot| of_owner(*slot)).last();
        let last = (slot..=slot.saturating_add(reach)).take_while(|slot| of_owner(*slot)).last();
        let (Some(first), Some(last)) = (first, last) else { return };
        let (first, last) = (first.to_string(), last.to_string());
        let target = self.nodes.ids[target].to_string();
        let words = ["CLUSTER", "MIGRATESLOTS", "SLOTSRANGE", &first, &last, "NODE", &target];
        self.order(owner, &words);
        if self.rng.below(4) > 0 {
            self.watch = Watch::new(Some(Plan::draw(&mut self.rng)));
        }
    }

    /// Who moves slots is ended, if that is what is to happen now.
    fn end_movers(&mut self) {
        if !self.watch.is_armed() {
            return;
        }
        let Some((stage, [source, target], victim)) = self.watch.look(&self.nodes) else { return };
        self.ran.ended[stage] += 1;
        match victim {
            Victim::Source => self.crash(source, None),
            Victim::Target => self.crash(target, None),
            Victim::Both => {
                self.crash(source, None);
                self.crash(target, None);
            }
            Victim::Split => {
                self.crash(source, None);
                let shard = self.nodes.shard_of(target);
                for node in (0..self.nodes.count()).filter(|node| !shard.contains(node)) {
                    for one in &shard {
                        self.hold_up(self.nodes.ip(*one), self.nodes.ip(node));
                    }
                }
                self.next_ns = self.now_ns + DISTURB_NS as u64 + self.rng.below(SPLIT_NS) as u64;
            }
            Victim::Link => self.network.reset(self.nodes.ip(source), self.nodes.ip(target)),
        }
    }

    /// Has one of those who can do something do it; if nobody can, time goes on, up to a moment.
    fn step(&mut self, until_ns: u64, may_begin: bool) -> Result<(), String> {
        let mut nodes = std::mem::take(&mut self.dues);
        nodes.clear();
        self.nodes.dues(&mut nodes);
        let mut dues: Vec<(u64, Actor)> =
            nodes.iter().map(|(ns, node, step)| (*ns, Actor::Node(*node, *step))).collect();
        self.dues = nodes;
        for (index, client) in self.clients.iter().enumerate() {
            if may_begin || !client.is_idle() {
                dues.push((client.due_ns(), Actor::Client(index)));
            }
        }
        dues.push((until_ns, Actor::Nobody));
        let first_ns = dues.iter().map(|(ns, _)| *ns).min().ok_or("nothing ever happens")?;
        let took_ns = 1 + self.rng.below(STEP_NS) as u64;
        self.now_ns += first_ns.saturating_sub(self.now_ns) + took_ns;
        clock::simulate(self.now_ns);
        dues.retain(|(ns, _)| *ns <= self.now_ns);
        match dues[self.rng.below(dues.len())].1 {
            Actor::Nobody => Ok(()),
            Actor::Node(node, step) => self.step_node(node, step),
            Actor::Client(index) => {
                self.ran.digest.note(100 + index as u64);
                let (network, places) = (&self.network, &self.nodes.places[..]);
                let client = &mut self.clients[index];
                let done = client.step(network, places, &self.keys, may_begin, &mut self.rng)?;
                if let Some((key, _)) = done {
                    self.say(|| format!("server {} has answered:", self.clients[index].asks(key)));
                }
                self.note(done);
                Ok(())
            }
        }
    }

    fn note(&mut self, done: Option<Done>) {
        if let Some((key, call)) = done {
            self.say(|| format!("{} {call:?}", self.keys[key]));
            self.ran.answers += u64::from(call.end_ns < u64::MAX);
            self.ran.digest.note(call.end_ns);
            self.calls[key].push(call);
        }
    }

    /// Now and then power goes between two operations of the disk, of which a step has several.
    fn step_node(&mut self, node: usize, step: Step) -> Result<(), String> {
        self.ran.digest.note(node as u64);
        let writes = self.is_stormy
            && matches!(
                step,
                Step::Part(Part::Log | Part::Bus | Part::NodesFile | Part::Worker(_))
            );
        if writes && self.rng.below(CUT_ONE_IN) == 0 {
            self.nodes.cut_in(node, self.rng.below(8));
        }
        self.nodes.step(node, step)?;
        if self.nodes.was_cut(node) {
            let luck = Luck::of_a_cut(&mut self.rng);
            self.crash(node, Some(luck));
        }
        Ok(())
    }

    /// All goes well from now on: sooner or later all agree.
    fn mend(&mut self) -> Result<(), String> {
        self.is_stormy = false;
        self.watch = Watch::new(None);
        self.release();
        for node in 0..self.nodes.count() {
            self.nodes.stop_until(node, 0);
        }
        let end_ns = self.now_ns + PEACE_NS;
        let mut found = Err(String::new());
        while found.is_err() && self.now_ns < end_ns {
            let look_ns = self.now_ns + LOOK_NS;
            while self.now_ns < look_ns {
                self.step(look_ns, false)?;
            }
            found = self.nodes.check_peace();
            // A primary that starts with keys of another's slot has that slot come, as Redis does.
            for (node, slot) in self.nodes.importing() {
                self.order(node, &["CLUSTER", "SETSLOT", &slot.to_string(), "STABLE"]);
            }
            for node in self.nodes.lonely() {
                self.order(node, &["CONFIG", "SET", "write-quorum", "0"]);
            }
        }
        self.count_reigns();
        for client in 0..CLIENTS {
            let done = self.clients[client].leave();
            self.note(done);
        }
        found.map_err(|what| format!("there is no peace in the end: {what}"))
    }

    /// Reads all keys, and looks whether there is an order that explains all that was answered.
    fn judge(&mut self) -> Result<(), String> {
        for key in 0..KEYS {
            let known = self.calls[key].len();
            let end_ns = self.now_ns + PEACE_NS;
            while self.calls[key].len() == known {
                if self.clients[0].is_idle() {
                    self.clients[0].begin(KEYS, Some(key), &mut self.rng);
                }
                self.step(end_ns, false)?;
                if self.now_ns >= end_ns {
                    let (key, how) = (&self.keys[key], self.nodes.describe());
                    return Err(format!("nobody answers for {key}: {how}"));
                }
            }
            check(&self.calls[key]).map_err(|what| {
                let (name, slot) = (&self.keys[key], slot_of(self.keys[key].as_bytes()));
                format!("{name} of slot {slot}: {what}")
            })?;
        }
        for node in 0..self.nodes.count() {
            let cluster = self.nodes.shared(node).and_then(|shared| shared.cluster.as_ref());
            let jobs = cluster.map(|cluster| cluster.handovers.jobs()).unwrap_or_default();
            let is_done = |stage| stage == kvasir_server::cluster::handovers::Stage::Success;
            let done = jobs.iter().filter(|job| !job.is_export && is_done(job.stage()));
            self.ran.moves += done.count() as u64;
        }
        Ok(())
    }
}
