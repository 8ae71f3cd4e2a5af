//! The world of one run: who does the next step, what time it is, and what goes wrong.

use std::net::{IpAddr, SocketAddr};

use kvasir_config::aof::Fsync;
use kvasir_keyspace::rng::Rng;
use kvasir_reactor::sim::Network;
use kvasir_reactor::{clock, random};
use kvasir_resp::encode::encode_request;
use kvasir_resp::value::Value;

use super::client::Client;
use super::{Ran, Setup};
use crate::connection::Connection;
use crate::disk::{Files, SimDisk};
use crate::ledger::{Ledgers, mget, numbers};
use crate::luck::Luck;
use crate::machine::{Host, Part, Server};

const CLIENTS: usize = 4;
/// Steps of a run.
const STEPS: usize = 3_000;
/// One of so many steps has a crash, ...
const CRASH_ONE_IN: usize = 700;
/// ...or a connection that breaks, ...
const RESET_ONE_IN: usize = 500;
/// ...or a client that hears nothing for a while.
const HOLD_ONE_IN: usize = 300;
const RELEASE_ONE_IN: usize = 60;
/// What a step takes, at most.
const STEP_NS: usize = 20_000;
/// How long it takes until all that was sent has arrived.
const ARRIVAL_NS: u64 = 60_000_000;
/// `everysec`: a power cut takes what is younger.
const EVERYSEC_NS: u64 = 2_000_000_000;
/// ...and the end of the process.
const GATHERED_NS: u64 = 100_000_000;
/// How long an answer is waited for after a start.
const PATIENCE_STEPS: usize = 100_000;

const SERVER: IpAddr = IpAddr::V4(std::net::Ipv4Addr::new(10, 0, 0, 1));
const JUDGE: IpAddr = IpAddr::V4(std::net::Ipv4Addr::new(10, 0, 2, 1));
const PORT: u16 = 6379;

pub struct World {
    setup: Setup,
    rng: Rng,
    now_ns: u64,
    host: Host,
    disk: SimDisk,
    server: Option<Server>,
    clients: Vec<Client>,
    ledgers: Ledgers,
    /// The client that hears nothing.
    held_up: Option<IpAddr>,
    ran: Ran,
}

/// Who can do a step.
#[derive(Clone, Copy)]
enum Actor {
    Server(Part),
    Client(usize),
    Judge,
}

/// Who is outside of the server.
#[derive(Clone, Copy)]
enum Outside {
    Clients,
    /// Who looks what is there, and hears something then.
    Judge(Option<u64>),
}

/// How a server ends.
#[derive(Clone, Copy)]
enum Crash {
    /// The process; the system has what was written.
    Kill,
    Power,
}

impl World {
    pub fn new(setup: Setup) -> World {
        let mut rng = Rng::new(setup.seed.wrapping_add(1).wrapping_mul(0xd134_2543_de82_ef95));
        let network = Network::new(rng.draw());
        random::simulate(rng.draw());
        World {
            setup,
            host: Host { network, ip: SERVER, port: PORT, workers: 1 + rng.below(3) },
            now_ns: 1,
            disk: SimDisk::with(&Files::new(), &[]),
            server: None,
            clients: (0..CLIENTS).map(Client::new).collect(),
            ledgers: (0..CLIENTS).map(|_| Vec::new()).collect(),
            held_up: None,
            ran: Ran::default(),
            rng,
        }
    }

    pub fn run(mut self) -> Result<Ran, String> {
        clock::simulate(self.now_ns);
        self.start()?;
        for _ in 0..STEPS {
            self.disturb();
            if self.rng.below(CRASH_ONE_IN) == 0 {
                let crash = if self.rng.below(2) == 0 { Crash::Kill } else { Crash::Power };
                let disk = self.disk.clone();
                self.crash(crash, &disk)?;
            }
            self.step(Outside::Clients)?;
        }
        let disk = self.disk.clone();
        self.crash(Crash::Power, &disk)?;
        Ok(self.ran)
    }

    fn start(&mut self) -> Result<(), String> {
        self.server =
            Some(Server::start(&self.host, &self.disk, self.setup.server_config(), None)?);
        Ok(())
    }

    /// Breaks or holds up connections.
    fn disturb(&mut self) {
        let client = self.clients[self.rng.below(CLIENTS)].ip;
        let network = &self.host.network;
        if self.rng.below(RESET_ONE_IN) == 0 {
            network.reset(client, SERVER);
        }
        match self.held_up {
            None if self.rng.below(HOLD_ONE_IN) == 0 => {
                network.hold_up(client, SERVER, true);
                self.held_up = Some(client);
            }
            Some(_) if self.rng.below(RELEASE_ONE_IN) == 0 => self.release(),
            _ => {}
        }
    }

    fn release(&mut self) {
        if let Some(client) = self.held_up.take() {
            self.host.network.hold_up(client, SERVER, false);
        }
    }

    /// Has one of those who can do something do it; if nobody can, time goes on.
    fn step(&mut self, outside: Outside) -> Result<(), String> {
        let is_judged = matches!(outside, Outside::Judge(_));
        let mut dues = self.dues(outside);
        let first_ns = dues.iter().map(|(ns, _)| *ns).min().ok_or("nothing ever happens")?;
        let took_ns = 1 + self.rng.below(STEP_NS) as u64;
        self.pass(first_ns.saturating_sub(self.now_ns) + took_ns);
        dues.retain(|(ns, _)| *ns <= self.now_ns);
        let (_, actor) = dues[self.rng.below(dues.len())];
        match actor {
            Actor::Judge => Ok(()),
            Actor::Server(Part::Log) => self.write_log(is_judged),
            Actor::Server(part) => {
                if let Part::Worker(index) = part {
                    self.ran.digest.note(index as u64);
                }
                self.server.as_mut().expect("it runs").step(part)
            }
            Actor::Client(index) => {
                self.ran.digest.note(100 + index as u64);
                let (network, server) = (&self.host.network, SocketAddr::new(SERVER, PORT));
                let (client, ledgers) = (&mut self.clients[index], &mut self.ledgers);
                let answers = client.step(network, server, ledgers, &mut self.rng)?;
                self.note_answers(&answers);
                Ok(())
            }
        }
    }

    fn dues(&mut self, outside: Outside) -> Vec<(u64, Actor)> {
        let server = self.server.as_mut().expect("it runs");
        let server = server.dues().into_iter();
        let mut dues: Vec<_> = server.map(|(ns, part)| (Some(ns), Actor::Server(part))).collect();
        match outside {
            Outside::Judge(ns) => dues.push((ns, Actor::Judge)),
            Outside::Clients => {
                let clients = self.clients.iter().map(Client::due_ns).enumerate();
                dues.extend(clients.map(|(index, ns)| (ns, Actor::Client(index))));
            }
        }
        dues.into_iter().filter_map(|(ns, actor)| Some((ns?, actor))).collect()
    }

    fn pass(&mut self, ns: u64) {
        self.now_ns += ns;
        clock::simulate(self.now_ns);
    }

    /// Now and then power goes between two operations of the disk, of which a step has several; not
    /// while a judge asks.
    fn write_log(&mut self, is_judged: bool) -> Result<(), String> {
        self.ran.digest.note(50);
        if !is_judged && self.rng.below(CRASH_ONE_IN) == 0 {
            self.disk.note_in(self.rng.below(6));
        }
        self.server.as_mut().expect("it runs").step(Part::Log)?;
        match self.disk.noted() {
            Some(disk) => self.crash(Crash::Power, &disk),
            None => Ok(()),
        }
    }

    /// Ends the server, starts it on what the disk has kept, and looks whether all is there that
    /// was promised.
    fn crash(&mut self, crash: Crash, disk: &SimDisk) -> Result<(), String> {
        let promised_ns = self.promised_ns(crash);
        self.ran.digest.note(200);
        self.host.network.stop(SERVER);
        self.server = None;
        let luck = match crash {
            Crash::Kill => Luck::KILLED,
            Crash::Power => Luck::of_a_cut(&mut self.rng),
        };
        self.disk = SimDisk::with(&disk.after(luck), &[]);
        self.release();
        self.pass(ARRIVAL_NS);
        for index in 0..CLIENTS {
            let client = &mut self.clients[index];
            let answers = client.receive(&mut self.ledgers, &mut self.rng)?;
            client.leave();
            self.note_answers(&answers);
        }
        self.start().map_err(|what| format!("after {luck:?} it does not start: {what}"))?;
        self.ran.crashes += 1;
        self.judge(promised_ns).map_err(|what| format!("after {luck:?}: {what}"))
    }

    /// Whoever was told of something until then finds it.
    fn promised_ns(&self, crash: Crash) -> u64 {
        let younger_ns = match (self.setup.config().aof.appendfsync, crash) {
            (Fsync::Always, _) => return u64::MAX,
            (_, Crash::Kill) => GATHERED_NS,
            (_, Crash::Power) => EVERYSEC_NS,
        };
        self.now_ns.saturating_sub(younger_ns)
    }

    /// Asks the server for all that was ever written.
    fn judge(&mut self, promised_ns: u64) -> Result<(), String> {
        for client in 0..CLIENTS {
            for generation in 0..self.ledgers[client].len() {
                let found = numbers(&self.ask(&mget(client, generation))?)?;
                let ledger = &mut self.ledgers[client][generation];
                let last = ledger
                    .judge(&found, ledger.known(promised_ns))
                    .map_err(|what| format!("client {client}, connection {generation}: {what}"))?;
                ledger.end_at(last, self.now_ns);
            }
        }
        Ok(())
    }

    /// The answer to a call, while clients rest.
    fn ask(&mut self, words: &[String]) -> Result<Value, String> {
        let server = SocketAddr::new(SERVER, PORT);
        let mut connection = Connection::open(&self.host.network, JUDGE, server);
        connection.send(&encode_request(words));
        for _ in 0..PATIENCE_STEPS {
            self.step(Outside::Judge(connection.next_ns()))?;
            if let Some(value) = connection.next_answer()? {
                return Ok(value);
            }
            if !connection.is_open() {
                return Err("the judge is turned away".into());
            }
        }
        Err("no answer comes".into())
    }

    fn note_answers(&mut self, answers: &[Value]) {
        self.ran.answers += answers.len() as u64;
        self.ran.digest.note_answers(answers);
    }
}
