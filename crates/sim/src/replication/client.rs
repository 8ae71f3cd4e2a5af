//! A client of several servers: it connects to one that it takes for the primary, sends some calls
//! at once, and reads the answers; after an error it goes to another one.

use std::collections::VecDeque;
use std::net::{IpAddr, SocketAddr};

use kvasir_keyspace::rng::Rng;
use kvasir_reactor::clock;
use kvasir_reactor::sim::Network;
use kvasir_resp::encode::encode_request;
use kvasir_resp::value::Value;

use crate::connection::Connection;
use crate::ledger::{Ledger, Ledgers, draw_write};

/// Calls sent at once, at most.
const PIPELINE_MAX: usize = 6;
/// How long it rests between them, at most.
const REST_NS: usize = 150_000_000;
/// How long it waits for an answer.
const PATIENCE_NS: u64 = 1_500_000_000;

/// After its connection has ended, or for each answer, it rests so long.
const AGAIN_NS: u64 = 10_000_000;

/// What the answers to a client mean.
#[derive(Clone, Copy)]
pub struct Promise {
    /// On so many replicas' disks; 0: nothing.
    pub replicas: usize,
    /// It is promised, and not asked for.
    pub is_not_asked_for: bool,
}

pub struct Client {
    number: usize,
    pub ip: IpAddr,
    promise: Promise,
    connection: Connection,
    /// To whom that is.
    server: Option<IpAddr>,
    /// For each answer that is still to come.
    asked: VecDeque<Ask>,
    /// It has heard an error, and leaves.
    is_unwelcome: bool,
    /// When it sends next, or has lost its patience.
    next_ns: u64,
}

enum Ask {
    /// Says nothing.
    Step,
    Write(usize),
}

impl Client {
    pub fn new(number: usize, promise: Promise) -> Client {
        Client {
            number,
            ip: IpAddr::from([10, 0, 1, number as u8 + 1]),
            promise,
            connection: Connection::default(),
            server: None,
            asked: VecDeque::new(),
            is_unwelcome: false,
            next_ns: 0,
        }
    }

    /// The database that it writes to.
    pub fn db(number: usize) -> usize {
        number % 2
    }

    pub fn due_ns(&self) -> Option<u64> {
        let arrives = self.connection.next_ns();
        arrives.into_iter().chain([self.next_ns]).min()
    }

    /// Reads what has arrived, and sends the next calls if all are answered. Returns what it
    /// has read.
    pub fn step(
        &mut self,
        network: &Network,
        server: SocketAddr,
        ledgers: &mut Ledgers,
        rng: &mut Rng,
    ) -> Result<Vec<Value>, String> {
        let answers = self.receive(ledgers)?;
        let now_ns = clock::monotonic_ns();
        if self.next_ns > now_ns {
            return Ok(answers);
        }
        if !self.asked.is_empty() {
            self.leave();
            self.next_ns = now_ns + 1 + rng.below(REST_NS) as u64;
            return Ok(answers);
        }
        let mut bytes = Vec::new();
        if !self.connection.is_open() {
            self.connection = Connection::open(network, self.ip, server);
            self.is_unwelcome = false;
            self.server = Some(server.ip());
            ledgers[self.number].push(Ledger::default());
            self.greet(&mut bytes);
        }
        for _ in 0..1 + rng.below(PIPELINE_MAX) {
            self.add_call(ledgers, rng, &mut bytes);
        }
        self.connection.send(&bytes);
        self.next_ns = now_ns + PATIENCE_NS;
        Ok(answers)
    }

    fn greet(&mut self, bytes: &mut Vec<u8>) {
        bytes.extend(encode_request(&["SELECT", &Client::db(self.number).to_string()]));
        self.asked.push_back(Ask::Step);
        let replicas = self.promise.replicas.to_string();
        if self.promise.replicas > 0 {
            let mut words = vec!["CLIENT", "DURABILITY", "REPLICAS", &replicas, "FSYNC"];
            words.truncate(if self.promise.is_not_asked_for { 4 } else { 5 });
            bytes.extend(encode_request(&words));
            self.asked.push_back(Ask::Step);
        }
    }

    /// Reads what has arrived.
    pub fn receive(&mut self, ledgers: &mut Ledgers) -> Result<Vec<Value>, String> {
        let (was_open, mut answers) = (self.connection.is_open(), Vec::new());
        while let Some(value) = self.connection.next_answer()? {
            self.take(&value, ledgers)?;
            answers.push(value);
        }
        let now_ns = clock::monotonic_ns();
        if was_open && !self.connection.is_open() {
            self.leave();
            self.next_ns = now_ns + AGAIN_NS;
        } else if self.asked.is_empty() && !answers.is_empty() {
            if self.is_unwelcome {
                self.leave();
            }
            self.next_ns = now_ns + answers.len() as u64 * AGAIN_NS;
        }
        Ok(answers)
    }

    /// A server gets another part.
    pub fn doubt(&self, server: IpAddr, ledgers: &mut Ledgers) {
        if self.server != Some(server) {
            return;
        }
        let numbers = self.asked.iter().filter_map(|ask| match ask {
            Ask::Write(number) => Some(*number),
            Ask::Step => None,
        });
        if let Some(ledger) = ledgers[self.number].last_mut() {
            ledger.doubt(numbers);
        }
    }

    /// Gives its connection up; the next one begins a ledger of its own.
    pub fn leave(&mut self) {
        self.connection.close();
        self.asked.clear();
    }

    fn take(&mut self, value: &Value, ledgers: &mut Ledgers) -> Result<(), String> {
        let ask = self.asked.pop_front().ok_or("an answer that nobody asked for")?;
        self.is_unwelcome |= value.is_error();
        let ledger = ledgers[self.number].last_mut().expect("it has a connection");
        match ask {
            Ask::Write(number) if value.is_error() => ledger.refuse(number),
            Ask::Write(number) if self.promise.replicas > 0 && !self.is_unwelcome => {
                ledger.know(number, clock::monotonic_ns());
            }
            Ask::Write(_) | Ask::Step => {}
        }
        Ok(())
    }

    fn add_call(&mut self, ledgers: &mut Ledgers, rng: &mut Rng, bytes: &mut Vec<u8>) {
        if let Some((number, steps)) = draw_write(ledgers, self.number, rng, bytes) {
            self.asked.extend((0..steps).map(|_| Ask::Step));
            self.asked.push_back(Ask::Write(number));
            return;
        }
        let member = rng.below(20).to_string();
        let words: &[&str] = match rng.below(5) {
            0 => &["SADD", "{all}set", &member],
            1 => &["SPOP", "{all}set"],
            2 => &["INCRBYFLOAT", "{all}sum", "0.1"],
            3 => &["SET", &format!("short:{member}"), "x", "PX", "40"],
            _ => &["RPUSH", "{all}list", &member],
        };
        bytes.extend(encode_request(words));
        self.asked.push_back(Ask::Step);
    }
}
