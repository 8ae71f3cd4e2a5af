//! The world of one run: who does the next step, what time it is, and what goes wrong.

use std::net::IpAddr;

use kvasir_keyspace::rng::Rng;
use kvasir_reactor::sim::Network;
use kvasir_reactor::{clock, random};
use kvasir_resp::encode::encode_request;

use super::client::{Client, Promise};
use super::cluster::{Cluster, Step};
use super::{Canary, Ran, Setup};
use crate::connection::Connection;
use crate::ledger::{Ledgers, mget, numbers};
use crate::luck::Luck;
use crate::machine::Part;

const CLIENTS: usize = 4;
/// Steps of a run.
const STEPS: usize = 3_000;
/// One of so many steps has a crash, ...
const CRASH_ONE_IN: usize = 900;
/// ...after which the server starts again within so long, ...
const DOWN_NS: usize = 800_000_000;
/// ...or power goes everywhere, ...
const BLACKOUT_ONE_IN: usize = 3_000;
/// ...or connections between two that break, ...
const RESET_ONE_IN: usize = 400;
/// ...or two that hear nothing of each other for a while.
const HOLD_ONE_IN: usize = 300;
const RELEASE_ONE_IN: usize = 60;
/// Where there is no primary one is made so soon, and another one now and then.
const ELECT_ONE_IN: usize = 60;
const ELECT_ANOTHER_ONE_IN: usize = 1_500;
const ARRANGE_ONE_IN: usize = 120;
/// What a step takes, at most.
const STEP_NS: usize = 20_000;
/// Steps within which all have the same data, once all is mended.
const MENDING_STEPS: usize = 100_000;

const JUDGE: IpAddr = IpAddr::V4(std::net::Ipv4Addr::new(10, 0, 2, 1));

pub struct World {
    rng: Rng,
    now_ns: u64,
    network: Network,
    cluster: Cluster,
    clients: Vec<Client>,
    ledgers: Ledgers,
    /// Two that hear nothing of each other.
    held_up: Option<(IpAddr, IpAddr)>,
    ran: Ran,
}

/// Who can do a step.
#[derive(Clone, Copy)]
enum Actor {
    Node(usize, Step),
    Client(usize),
    Judge,
}

impl World {
    pub fn new(setup: Setup) -> World {
        let seed = setup.seed.wrapping_add(1).wrapping_mul(0xd134_2543_de82_ef95);
        let mut rng = Rng::new(seed);
        random::simulate(rng.draw());
        let network = Network::new(rng.draw());
        let cluster = Cluster::new(setup, &network, &mut rng);
        let client = |number: usize| {
            // Some ask for nothing.
            let replicas = if number + 1 < CLIENTS { setup.size().quorum } else { 0 };
            let is_not_asked_for = setup.canary == Some(Canary::AcknowledgesEarly);
            Client::new(number, Promise { replicas, is_not_asked_for })
        };
        World {
            now_ns: 1,
            network,
            cluster,
            clients: (0..CLIENTS).map(client).collect(),
            ledgers: (0..CLIENTS).map(|_| Vec::new()).collect(),
            held_up: None,
            ran: Ran::default(),
            rng,
        }
    }

    pub fn run(mut self) -> Result<Ran, String> {
        clock::simulate(self.now_ns);
        for _ in 0..STEPS {
            self.disturb();
            self.step(true, None)?;
        }
        self.mend()?;
        self.cluster.compare()?;
        self.judge()?;
        self.ran.reigns = self.cluster.reigns() as u64;
        Ok(self.ran)
    }

    /// What goes wrong, and what is done about it.
    fn disturb(&mut self) {
        let rng = &mut self.rng;
        let (node, other) = (rng.below(self.cluster.count()), rng.below(self.cluster.count()));
        let ip = self.cluster.address(node).ip();
        let peer = match rng.below(3) {
            0 => self.clients[rng.below(CLIENTS)].ip,
            _ => self.cluster.address(other).ip(),
        };
        if rng.below(RESET_ONE_IN) == 0 {
            self.network.reset(ip, peer);
        }
        match self.held_up {
            None if rng.below(HOLD_ONE_IN) == 0 => {
                self.network.hold_up(ip, peer, true);
                self.held_up = Some((ip, peer));
            }
            Some(_) if rng.below(RELEASE_ONE_IN) == 0 => self.release(),
            _ => {}
        }
        if self.rng.below(CRASH_ONE_IN) == 0 && self.cluster.is_up(node) {
            let luck =
                if self.rng.below(2) == 0 { Luck::KILLED } else { Luck::of_a_cut(&mut self.rng) };
            self.crash(node, luck);
        }
        if self.rng.below(BLACKOUT_ONE_IN) == 0 {
            for node in 0..self.cluster.count() {
                if self.cluster.is_up(node) {
                    let luck = Luck::of_a_cut(&mut self.rng);
                    self.crash(node, luck);
                }
            }
        }
        let elect_one_in =
            if self.cluster.has_primary() { ELECT_ANOTHER_ONE_IN } else { ELECT_ONE_IN };
        if self.cluster.reigns() > 0 && self.rng.below(elect_one_in) == 0 {
            let changed = self.cluster.elect(&mut self.rng, false);
            self.part_clients(&changed);
        }
        if self.rng.below(ARRANGE_ONE_IN) == 0 {
            let changed = self.cluster.arrange(&mut self.rng);
            self.part_clients(changed.as_slice());
        }
    }

    fn release(&mut self) {
        if let Some((one, other)) = self.held_up.take() {
            self.network.hold_up(one, other, false);
        }
    }

    /// Who has given a server another part closes the connections of its clients.
    fn part_clients(&mut self, nodes: &[usize]) {
        for node in nodes {
            let ip = self.cluster.address(*node).ip();
            for client in &self.clients {
                client.doubt(ip, &mut self.ledgers);
                self.network.reset(client.ip, ip);
            }
        }
    }

    fn crash(&mut self, node: usize, luck: Luck) {
        self.ran.digest.note(200 + node as u64);
        let start_ns = self.now_ns + self.rng.below(DOWN_NS) as u64;
        self.cluster.crash(node, luck, start_ns);
        self.ran.crashes += 1;
    }

    /// Has one of those who can do something do it; if nobody can, time goes on. Clients may rest,
    /// and a judge wait until a time.
    fn step(&mut self, has_clients: bool, judge_ns: Option<u64>) -> Result<(), String> {
        let nodes = self.cluster.dues().into_iter();
        let mut dues: Vec<_> =
            nodes.map(|(ns, node, step)| (ns, Actor::Node(node, step))).collect();
        dues.extend(judge_ns.map(|ns| (ns, Actor::Judge)));
        if has_clients {
            let clients = self.clients.iter().map(Client::due_ns).enumerate();
            dues.extend(clients.filter_map(|(index, ns)| Some((ns?, Actor::Client(index)))));
        }
        let first_ns = dues.iter().map(|(ns, _)| *ns).min().ok_or("nothing ever happens")?;
        let took_ns = 1 + self.rng.below(STEP_NS) as u64;
        self.now_ns += first_ns.saturating_sub(self.now_ns) + took_ns;
        clock::simulate(self.now_ns);
        dues.retain(|(ns, _)| *ns <= self.now_ns);
        let (_, actor) = dues[self.rng.below(dues.len())];
        match actor {
            Actor::Judge => Ok(()),
            Actor::Node(node, step) => self.step_node(node, step, has_clients),
            Actor::Client(index) => {
                self.ran.digest.note(100 + index as u64);
                let node = match self.rng.below(8) {
                    0 => self.rng.below(self.cluster.count()),
                    _ => self.cluster.primary,
                };
                let (network, server) = (&self.network, self.cluster.address(node));
                let (client, ledgers) = (&mut self.clients[index], &mut self.ledgers);
                let answers = client.step(network, server, ledgers, &mut self.rng)?;
                self.ran.answers += answers.len() as u64;
                self.ran.digest.note_answers(&answers);
                Ok(())
            }
        }
    }

    /// Now and then power goes between two operations of the disk, of which a step has several; not
    /// while all is to become well.
    fn step_node(&mut self, node: usize, step: Step, may_fail: bool) -> Result<(), String> {
        self.ran.digest.note(node as u64);
        let writes = may_fail && step == Step::Part(Part::Log);
        if writes && self.rng.below(CRASH_ONE_IN) == 0 {
            self.cluster.note_in(node, self.rng.below(12));
        }
        self.cluster.step(node, step)?;
        if writes && self.cluster.has_noted(node) {
            let luck = Luck::of_a_cut(&mut self.rng);
            self.crash(node, luck);
        }
        Ok(())
    }

    /// All is mended, and clients rest: sooner or later all have the same.
    fn mend(&mut self) -> Result<(), String> {
        self.release();
        for _ in 0..MENDING_STEPS {
            if !self.cluster.has_primary() {
                self.cluster.elect(&mut self.rng, true);
            } else if self.rng.below(100) == 0 {
                self.cluster.arrange_all();
            }
            self.step(false, None)?;
            if self.cluster.is_whole() {
                break;
            }
        }
        // What clients were told before that counts.
        for client in &mut self.clients {
            client.receive(&mut self.ledgers)?;
            client.leave();
        }
        match self.cluster.is_whole() {
            true => Ok(()),
            false => Err(format!("not all have the same in the end: {}", self.cluster.describe())),
        }
    }

    /// Asks one of them for all that was ever written.
    fn judge(&mut self) -> Result<(), String> {
        let node = self.rng.below(self.cluster.count());
        for client in 0..CLIENTS {
            for generation in 0..self.ledgers[client].len() {
                let found = self.ask(node, client, generation)?;
                let ledger = &self.ledgers[client][generation];
                ledger.judge(&found, ledger.known(u64::MAX)).map_err(|what| {
                    let cluster = self.cluster.describe();
                    format!("client {client}, connection {generation}: {what}; {cluster}")
                })?;
            }
        }
        Ok(())
    }

    /// The values of a ledger's keys, while clients rest.
    fn ask(&mut self, node: usize, client: usize, generation: usize) -> Result<Vec<usize>, String> {
        let mut connection = Connection::open(&self.network, JUDGE, self.cluster.address(node));
        connection.send(&encode_request(&["SELECT", &Client::db(client).to_string()]));
        connection.send(&encode_request(&mget(client, generation)));
        let mut is_selected = false;
        for _ in 0..MENDING_STEPS {
            self.step(false, connection.next_ns())?;
            while let Some(value) = connection.next_answer()? {
                if std::mem::replace(&mut is_selected, true) {
                    return numbers(&value);
                }
            }
            if !connection.is_open() {
                return Err("the judge is turned away".into());
            }
        }
        Err("no answer comes".into())
    }
}
