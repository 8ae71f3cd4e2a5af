//! A client: it connects, sends some calls at once, and reads the answers.

use std::collections::VecDeque;
use std::net::{IpAddr, SocketAddr};

use kvasir_keyspace::rng::Rng;
use kvasir_reactor::clock;
use kvasir_reactor::sim::Network;
use kvasir_resp::encode::encode_request;
use kvasir_resp::value::Value;

use crate::connection::Connection;
use crate::ledger::{Ledger, Ledgers, draw_write, mget, numbers};

/// Calls sent at once, at most.
const PIPELINE_MAX: usize = 6;
/// How long it rests between them, at most.
const REST_NS: usize = 30_000_000;

pub struct Client {
    number: usize,
    pub ip: IpAddr,
    connection: Connection,
    /// For each answer that is still to come.
    asked: VecDeque<Ask>,
    next_ns: u64,
}

enum Ask {
    /// Says no more than that it has come so far.
    Step,
    Write(usize),
    /// All keys of a ledger, of which so much was known when this was asked.
    Read {
        whose: (usize, usize),
        least: usize,
    },
}

impl Client {
    pub fn new(number: usize) -> Client {
        Client {
            number,
            ip: IpAddr::from([10, 0, 1, number as u8 + 1]),
            connection: Connection::default(),
            asked: VecDeque::new(),
            next_ns: 0,
        }
    }

    pub fn due_ns(&self) -> Option<u64> {
        let arrives = self.connection.next_ns();
        let sends = self.asked.is_empty().then_some(self.next_ns);
        arrives.into_iter().chain(sends).min()
    }

    /// Reads what has arrived, and sends the next calls if all are answered. Returns what it has
    /// read.
    pub fn step(
        &mut self,
        network: &Network,
        server: SocketAddr,
        ledgers: &mut Ledgers,
        rng: &mut Rng,
    ) -> Result<Vec<Value>, String> {
        if !self.connection.is_open() {
            self.connection = Connection::open(network, self.ip, server);
            ledgers[self.number].push(Ledger::default());
        }
        let answers = self.receive(ledgers, rng)?;
        let now_ns = clock::monotonic_ns();
        if self.connection.is_open() && self.asked.is_empty() && self.next_ns <= now_ns {
            self.send(ledgers, rng);
            self.next_ns = now_ns + 1 + rng.below(REST_NS) as u64;
        }
        Ok(answers)
    }

    /// Reads what has arrived.
    pub fn receive(&mut self, ledgers: &mut Ledgers, rng: &mut Rng) -> Result<Vec<Value>, String> {
        let (was_open, mut answers) = (self.connection.is_open(), Vec::new());
        while let Some(value) = self.connection.next_answer()? {
            self.take(&value, ledgers)?;
            answers.push(value);
        }
        if was_open && !self.connection.is_open() {
            self.leave();
            self.next_ns = clock::monotonic_ns() + rng.below(REST_NS) as u64;
        }
        Ok(answers)
    }

    /// Gives its connection up; the next one begins a ledger of its own.
    pub fn leave(&mut self) {
        self.connection.close();
        self.asked.clear();
    }

    fn take(&mut self, value: &Value, ledgers: &mut Ledgers) -> Result<(), String> {
        if value.is_error() {
            return Err(format!("an error is answered: {value:?}"));
        }
        let now_ns = clock::monotonic_ns();
        match self.asked.pop_front().ok_or("an answer that nobody asked for")? {
            Ask::Step => {}
            Ask::Write(number) => {
                let ledger = ledgers[self.number].last_mut().expect("it has a connection");
                ledger.know(number, now_ns);
            }
            Ask::Read { whose: (client, generation), least } => {
                let ledger = &mut ledgers[client][generation];
                let last = ledger.judge(&numbers(value)?, least).map_err(|what| {
                    format!("read of client {client}, connection {generation}: {what}")
                })?;
                ledger.know(last, now_ns);
            }
        }
        Ok(())
    }

    fn send(&mut self, ledgers: &mut Ledgers, rng: &mut Rng) {
        let mut bytes = Vec::new();
        for _ in 0..1 + rng.below(PIPELINE_MAX) {
            self.add_call(ledgers, rng, &mut bytes);
        }
        self.connection.send(&bytes);
    }

    fn add_call(&mut self, ledgers: &mut Ledgers, rng: &mut Rng, bytes: &mut Vec<u8>) {
        if let Some((number, steps)) = draw_write(ledgers, self.number, rng, bytes) {
            self.asked.extend((0..steps).map(|_| Ask::Step));
            self.asked.push_back(Ask::Write(number));
            return;
        }
        let client = rng.below(ledgers.len());
        let Some(generation) = ledgers[client].len().checked_sub(1) else { return };
        let generation = generation - rng.below(2).min(generation);
        let least = ledgers[client][generation].known(u64::MAX);
        bytes.extend(encode_request(&mget(client, generation)));
        self.asked.push_back(Ask::Read { whose: (client, generation), least });
    }
}
