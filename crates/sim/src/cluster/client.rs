//! A client of a cluster: one call at a time on one of a few keys, sent to who seems to have its
//! slot, and to another one where it is told so.

use std::net::{IpAddr, SocketAddr};

use kvasir_keyspace::rng::Rng;
use kvasir_reactor::clock;
use kvasir_reactor::sim::Network;
use kvasir_resp::encode::encode_request;
use kvasir_resp::value::Value;

use super::history::{Call, Did, NOTHING};
use crate::connection::Connection;

/// How long it rests between two calls, at most.
const REST_NS: usize = 60_000_000;
/// How long it waits for an answer.
const PATIENCE_NS: u64 = 1_500_000_000;
/// Between two tries, at most.
const AGAIN_NS: usize = 30_000_000;
/// A call is tried at so many places.
const TRIES: usize = 12;

/// What came of a call on a key.
pub type Done = (usize, Call);

pub struct Client {
    number: u64,
    ip: IpAddr,
    connections: Vec<Connection>,
    /// Whom it takes for the owner of a key's slot.
    owners: Vec<usize>,
    call: Option<Pending>,
    next_ns: u64,
    count: u64,
}

struct Pending {
    key: usize,
    did: Did,
    begin_ns: u64,
    tries: usize,
    /// Where it was sent, and that it is asked there as an exception.
    sent: Option<usize>,
    asks: bool,
    /// Answers that come before that which counts.
    skips: usize,
}

impl Client {
    pub fn new(number: usize, nodes: usize, keys: usize) -> Client {
        Client {
            number: number as u64 + 1,
            ip: IpAddr::from([10, 0, 1, number as u8 + 1]),
            connections: (0..nodes).map(|_| Connection::default()).collect(),
            owners: (0..keys).map(|key| key % nodes).collect(),
            call: None,
            next_ns: 0,
            count: 0,
        }
    }

    pub fn ip(&self) -> IpAddr {
        self.ip
    }

    /// Whom it asks about a key.
    pub fn asks(&self, key: usize) -> usize {
        self.owners[key]
    }

    pub fn is_idle(&self) -> bool {
        self.call.is_none()
    }

    pub fn due_ns(&self) -> u64 {
        let sent = self.call.as_ref().and_then(|call| call.sent);
        let arrives = sent.and_then(|node| self.connections[node].next_ns());
        arrives.unwrap_or(u64::MAX).min(self.next_ns)
    }

    /// Reads what has come, or begins another call if it may.
    pub fn step(
        &mut self,
        network: &Network,
        places: &[SocketAddr],
        keys: &[String],
        may_begin: bool,
        rng: &mut Rng,
    ) -> Result<Option<Done>, String> {
        let now_ns = clock::monotonic_ns();
        let Some(call) = &mut self.call else {
            if may_begin && self.next_ns <= now_ns {
                self.begin(keys.len(), None, rng);
            }
            return Ok(None);
        };
        let Some(node) = call.sent else {
            if self.next_ns <= now_ns {
                self.send(network, places, keys);
            }
            return Ok(None);
        };
        let answer = self.connections[node].next_answer()?;
        match answer {
            Some(_) if call.skips > 0 => {
                call.skips -= 1;
                Ok(None)
            }
            Some(value) => self.take(&value, places, rng),
            None if !self.connections[node].is_open() || self.next_ns <= now_ns => {
                // What came of it nobody knows.
                self.connections[node].close();
                let is_read = matches!(call.did, Did::Read(_));
                if is_read {
                    self.try_again(None, rng);
                    return Ok(None);
                }
                let (key, done) =
                    (call.key, Call { did: call.did, begin_ns: call.begin_ns, end_ns: u64::MAX });
                self.owners[key] = rng.below(places.len());
                self.rest(rng);
                Ok(Some((key, done)))
            }
            None => Ok(None),
        }
    }

    /// Begins a call: a read of this key, or any.
    pub fn begin(&mut self, keys: usize, reads: Option<usize>, rng: &mut Rng) {
        let key = reads.unwrap_or_else(|| rng.below(keys));
        let did = match reads.is_some() || rng.below(3) == 0 {
            true => Did::Read(NOTHING),
            false => {
                self.count += 1;
                Did::Write(self.number * 1_000_000 + self.count)
            }
        };
        let begin_ns = clock::monotonic_ns();
        self.next_ns = begin_ns;
        let pending = Pending { key, did, begin_ns, tries: 0, sent: None, asks: false, skips: 0 };
        self.call = Some(pending);
    }

    fn rest(&mut self, rng: &mut Rng) {
        self.call = None;
        self.next_ns = clock::monotonic_ns() + 1 + rng.below(REST_NS) as u64;
    }

    fn send(&mut self, network: &Network, places: &[SocketAddr], keys: &[String]) {
        let Some(call) = &mut self.call else { return };
        let node = self.owners[call.key];
        let connection = &mut self.connections[node];
        if !connection.is_open() {
            *connection = Connection::open(network, self.ip, places[node]);
        }
        let mut bytes = Vec::new();
        call.skips = usize::from(call.asks);
        if call.asks {
            bytes.extend(encode_request(&["ASKING"]));
        }
        let key = &keys[call.key];
        match call.did {
            Did::Write(value) => bytes.extend(encode_request(&["SET", key, &value.to_string()])),
            Did::Read(_) => bytes.extend(encode_request(&["GET", key])),
        }
        connection.send(&bytes);
        (call.sent, call.asks) = (Some(node), false);
        self.next_ns = clock::monotonic_ns() + PATIENCE_NS;
    }

    fn take(
        &mut self,
        value: &Value,
        places: &[SocketAddr],
        rng: &mut Rng,
    ) -> Result<Option<Done>, String> {
        let Some(call) = &mut self.call else {
            return Err("an answer that nobody asked for".into());
        };
        let (key, begin_ns, end_ns) = (call.key, call.begin_ns, clock::monotonic_ns());
        let did = match (call.did, value) {
            (_, Value::Error(text)) => {
                let text = String::from_utf8_lossy(text.as_ref()).into_owned();
                return self.take_error(&text, places, rng);
            }
            (Did::Write(_), _) => call.did,
            (Did::Read(_), Value::Null) => Did::Read(NOTHING),
            (Did::Read(_), Value::Bulk(text)) => {
                let number = std::str::from_utf8(text).ok().and_then(|text| text.parse().ok());
                Did::Read(number.ok_or_else(|| format!("nobody wrote {value:?}"))?)
            }
            _ => return Err(format!("what is answered is no value: {value:?}")),
        };
        self.rest(rng);
        Ok(Some((key, Call { did, begin_ns, end_ns })))
    }

    /// It was not executed there, or nobody knows.
    fn take_error(
        &mut self,
        text: &str,
        places: &[SocketAddr],
        rng: &mut Rng,
    ) -> Result<Option<Done>, String> {
        let Some(call) = &mut self.call else { return Ok(None) };
        let mut words = text.split(' ');
        match words.next() {
            Some(word @ ("MOVED" | "ASK")) => {
                let place = words.nth(1).and_then(|place| place.parse::<SocketAddr>().ok());
                let node = place.and_then(|place| places.iter().position(|one| *one == place));
                call.asks = word == "ASK";
                self.try_again(node, rng);
                Ok(None)
            }
            Some("TRYAGAIN" | "CLUSTERDOWN" | "LOADING" | "READONLY" | "MASTERDOWN") => {
                self.try_again(None, rng);
                Ok(None)
            }
            // Of a write that waited for others.
            Some("UNBLOCKED" | "NOREPLICAS") => {
                let (key, did, begin_ns) = (call.key, call.did, call.begin_ns);
                self.rest(rng);
                let is_write = matches!(did, Did::Write(_));
                Ok(is_write.then_some((key, Call { did, begin_ns, end_ns: u64::MAX })))
            }
            _ => Err(format!("an error is answered: {text}")),
        }
    }

    /// At this node, or at any; a call that is tried too often is given up: none has taken it.
    fn try_again(&mut self, node: Option<usize>, rng: &mut Rng) {
        let Some(call) = &mut self.call else { return };
        call.tries += 1;
        call.sent = None;
        let wait_ns = if node.is_some() { 1 } else { 1 + rng.below(AGAIN_NS) as u64 };
        self.owners[call.key] = node.unwrap_or_else(|| rng.below(self.connections.len()));
        self.next_ns = clock::monotonic_ns() + wait_ns;
        if call.tries > TRIES {
            self.rest(rng);
        }
    }

    /// Its connections are closed.
    pub fn leave(&mut self) -> Option<Done> {
        self.connections.iter_mut().for_each(Connection::close);
        let call = self.call.take()?;
        let Did::Write(_) = call.did else { return None };
        Some((call.key, Call { did: call.did, begin_ns: call.begin_ns, end_ns: u64::MAX }))
    }
}
