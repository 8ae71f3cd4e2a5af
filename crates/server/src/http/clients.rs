//! Connections of HTTP: how many there may be, and how long each may take.
//!
//! Whoever comes when there are `CLIENTS_MAX` takes the place of the one that has been waited for
//! longest, be it idle or slow: who is quick is always served. Who is being served goes last.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use kvasir_reactor::{ConnectionId, Payload, Reactor, Socket};

use crate::http::answer::Answer;
use crate::http::request::{BODY_MAX, HEAD_MAX, Malformed, Method, Request};
use crate::http::routes::Routes;
use crate::net::tls::peer::Peer;
use crate::state::shared::Shared;

/// A Prometheus takes one, a browser up to six.
const CLIENTS_MAX: usize = 64;
/// For a request to come whole, from its first byte, or the connection's.
const REQUEST_TIME: Duration = Duration::from_secs(10);
/// Between two requests. Longer than scrapers pause.
const IDLE_TIME: Duration = Duration::from_secs(90);
/// For an answer to be taken.
const SEND_TIME: Duration = Duration::from_secs(30);
/// Who has not taken its answer by then is slow.
const QUICK_TIME: Duration = Duration::from_secs(2);

#[derive(Default)]
pub struct Clients(HashMap<ConnectionId, Client>);

struct Client {
    tls: Option<Peer>,
    /// Where it is.
    address: String,
    /// Received, and not yet a whole request.
    input: Vec<u8>,
    stage: Stage,
    since: Instant,
    /// The request that is answered.
    asked: Asked,
    /// Nothing more will come.
    has_ended: bool,
    is_sending: bool,
    /// To be sent behind what is being sent.
    waiting: Vec<u8>,
}

/// How a request was made, and whether others may follow.
#[derive(Clone, Copy)]
struct Asked {
    method: Method,
    is_kept: bool,
}

impl Asked {
    /// As what is no request is taken.
    const LAST: Asked = Asked { method: Method::Get, is_kept: false };
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Stage {
    /// The first request, or another that has begun, is on its way.
    Reads,
    Idle,
    /// Its request has come, and waits for the server's answer.
    Waits,
    /// The answer is on its way.
    Answers,
}

impl Client {
    fn new(tls: Option<Peer>, address: String) -> Client {
        Client {
            tls,
            address,
            input: Vec::new(),
            stage: Stage::Reads,
            since: Instant::now(),
            asked: Asked::LAST,
            has_ended: false,
            is_sending: false,
            waiting: Vec::new(),
        }
    }

    fn enter(&mut self, stage: Stage) {
        (self.stage, self.since) = (stage, Instant::now());
    }

    /// Whether it waits for the server, or has its answer on the way.
    fn is_served(&self) -> bool {
        match self.stage {
            Stage::Reads | Stage::Idle => false,
            Stage::Waits => true,
            Stage::Answers => self.since.elapsed() < QUICK_TIME,
        }
    }

    fn time_max(&self) -> Duration {
        match self.stage {
            Stage::Reads => REQUEST_TIME,
            Stage::Idle => IDLE_TIME,
            Stage::Waits | Stage::Answers => SEND_TIME,
        }
    }

    /// What it says, out of what has come.
    fn take(&mut self, bytes: &[u8]) -> bool {
        match &mut self.tls {
            Some(tls) => tls.receive(bytes, &mut self.input).is_ok(),
            None => {
                self.input.extend_from_slice(bytes);
                true
            }
        }
    }

    fn send(&mut self, reactor: &mut Reactor, id: ConnectionId, bytes: Vec<u8>) {
        let bytes = match &mut self.tls {
            Some(tls) => {
                // Behind an error only the alert is left to say.
                let _ = tls.say(&bytes);
                tls.take_records()
            }
            None => bytes,
        };
        self.waiting.extend(bytes);
        self.send_waiting(reactor, id);
    }

    /// A connection has one payload on its way at a time.
    fn send_waiting(&mut self, reactor: &mut Reactor, id: ConnectionId) {
        if !self.is_sending && !self.waiting.is_empty() {
            self.is_sending = true;
            let bytes = std::mem::take(&mut self.waiting);
            reactor.send(id, Payload { bytes, shared: Vec::new() });
        }
    }

    fn answer(&mut self, reactor: &mut Reactor, id: ConnectionId, answer: &Answer) {
        let Asked { method, is_kept } = self.asked;
        self.enter(Stage::Answers);
        self.send(reactor, id, answer.bytes(method != Method::Head, is_kept));
    }
}

impl Clients {
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub fn accept(&mut self, reactor: &mut Reactor, socket: Socket, shared: &Shared) {
        let tls = match shared.config().tls.metrics {
            false => None,
            true => match shared.tls.context().and_then(Peer::of_client) {
                Some(peer) => Some(peer),
                None => return,
            },
        };
        if self.0.len() >= CLIENTS_MAX {
            self.make_room(reactor);
        }
        let _ = socket.set_nodelay();
        // Of who has gone already it is not known.
        let address = socket.peer().map_or_else(|_| String::new(), |peer| peer.to_string());
        self.0.insert(reactor.register(socket), Client::new(tls, address));
    }

    /// Closes the one that has been waited for longest, of those that are not being served if there
    /// are such.
    fn make_room(&mut self, reactor: &mut Reactor) {
        let oldest = self.0.iter().min_by_key(|(_, client)| (client.is_served(), client.since));
        if let Some(id) = oldest.map(|(id, _)| *id) {
            self.close(reactor, id);
        }
    }

    pub fn received(
        &mut self,
        reactor: &mut Reactor,
        id: ConnectionId,
        bytes: &[u8],
        routes: &mut Routes,
    ) {
        let Some(client) = self.0.get_mut(&id) else { return };
        let is_sound = client.take(bytes);
        // The handshake, or why it fails.
        client.send(reactor, id, Vec::new());
        if !is_sound || client.input.len() > HEAD_MAX + BODY_MAX {
            return self.close_after_alert(reactor, id);
        }
        if client.stage == Stage::Idle {
            client.enter(Stage::Reads);
        }
        self.serve(reactor, id, routes);
    }

    fn close_after_alert(&mut self, reactor: &mut Reactor, id: ConnectionId) {
        match self.0.get_mut(&id) {
            Some(client) if client.is_sending => {
                client.asked.is_kept = false;
                client.enter(Stage::Answers);
            }
            _ => self.close(reactor, id),
        }
    }

    /// Answers the next request, if it has come and none is being answered.
    fn serve(&mut self, reactor: &mut Reactor, id: ConnectionId, routes: &mut Routes) {
        let Some(client) = self.0.get_mut(&id) else { return };
        if client.stage != Stage::Reads {
            return;
        }
        match Request::parse(&client.input) {
            Ok(Some((request, len))) => {
                client.input.drain(..len);
                client.asked = Asked { method: request.method, is_kept: request.is_kept };
                client.enter(Stage::Waits);
                if let Some(answer) = routes.answer(&request, &client.address, id, reactor) {
                    client.answer(reactor, id, &answer);
                }
            }
            Ok(None) if client.has_ended => self.close(reactor, id),
            Ok(None) => {}
            Err(Malformed(status)) => {
                client.asked = Asked::LAST;
                client.answer(reactor, id, &Answer::refusal(status));
            }
        }
    }

    /// Nothing more will come. What is being answered is still sent.
    pub fn ended(&mut self, reactor: &mut Reactor, id: ConnectionId) {
        let Some(client) = self.0.get_mut(&id) else { return };
        client.has_ended = true;
        if !matches!(client.stage, Stage::Waits | Stage::Answers) {
            self.close(reactor, id);
        }
    }

    pub fn sent(
        &mut self,
        reactor: &mut Reactor,
        id: ConnectionId,
        is_sent: bool,
        routes: &mut Routes,
    ) {
        let Some(client) = self.0.get_mut(&id) else { return };
        client.is_sending = false;
        client.send_waiting(reactor, id);
        let has_more = !client.input.is_empty();
        match client.stage {
            _ if !is_sent => self.close(reactor, id),
            Stage::Answers if client.is_sending => {}
            Stage::Answers if client.asked.is_kept && (has_more || !client.has_ended) => {
                client.enter(if has_more { Stage::Reads } else { Stage::Idle });
                self.serve(reactor, id, routes);
            }
            Stage::Answers => self.close(reactor, id),
            Stage::Reads | Stage::Idle | Stage::Waits => {}
        }
    }

    /// The answer to a request that was kept waiting.
    pub fn answer(&mut self, reactor: &mut Reactor, id: ConnectionId, answer: &Answer) {
        if let Some(client) = self.0.get_mut(&id) {
            client.answer(reactor, id, answer);
        }
    }

    pub fn close_late(&mut self, reactor: &mut Reactor) {
        let is_late = |client: &Client| client.since.elapsed() >= client.time_max();
        let late: Vec<_> =
            self.0.iter().filter(|(_, client)| is_late(client)).map(|(id, _)| *id).collect();
        late.into_iter().for_each(|id| self.close(reactor, id));
    }

    fn close(&mut self, reactor: &mut Reactor, id: ConnectionId) {
        self.0.remove(&id);
        reactor.close(id);
    }
}
