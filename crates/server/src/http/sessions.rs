//! Who is logged in at the console: a session is a connection of this server to itself, on which
//! its user has logged in, so that the ACL, the limits and the lists of clients hold for it as for
//! any other.
//!
//! A browser knows its session by a cookie that no script can read; what changes anything must
//! show a token besides, which the page of another site cannot know.

use std::cmp::Reverse;
use std::collections::HashMap;
use std::os::unix::net::UnixStream;
use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant};

use kvasir_reactor::{ConnectionId, Payload, Reactor, random};
use kvasir_resp::encode::encode_request;

use crate::http::answer::Answer;
use crate::http::replies::Replies;
use crate::net::listen::ListenerKind;
use crate::state::shared::Shared;
use crate::workers::Message;

/// Sessions at once. Another one takes the place of the one of its own user that was used longest
/// ago, or, if there is none, of one of the user who has most.
const SESSIONS_MAX: usize = 32;
/// A session that is not used for so long is over.
const IDLE_TIME: Duration = Duration::from_secs(30 * 60);
/// For the server to answer. A session whose calls take longer is over: they may go on for ever.
const ANSWER_TIME: Duration = Duration::from_secs(25);
/// So many passwords may be wrong in so long a time, before all have to wait.
const WRONG_MAX: usize = 10;
const WRONG_TIME: Duration = Duration::from_secs(10);

pub struct Sessions {
    /// The name of the cookie. Browsers tell cookies apart by host, not by port.
    cookie: String,
    /// By their connections to the server.
    all: HashMap<ConnectionId, Session>,
    /// When passwords were wrong.
    wrong: Vec<Instant>,
}

struct Session {
    id: String,
    token: String,
    user: String,
    is_logged_in: bool,
    used: Instant,
    pending: Option<Pending>,
    is_sending: bool,
    /// To be sent behind what is being sent.
    waiting: Option<Vec<u8>>,
}

impl Session {
    fn send_waiting(&mut self, reactor: &mut Reactor, connection: ConnectionId) {
        if !self.is_sending
            && let Some(bytes) = self.waiting.take()
        {
            self.is_sending = true;
            reactor.send(connection, Payload { bytes, shared: Vec::new() });
        }
    }
}

/// Calls that are being answered.
struct Pending {
    /// Who has asked.
    client: ConnectionId,
    since: Instant,
    replies: Replies,
}

impl Pending {
    fn new(client: ConnectionId, calls: Vec<&'static str>) -> Pending {
        Pending { client, since: Instant::now(), replies: Replies::new(calls) }
    }
}

/// What a browser says to show whose it is.
#[derive(Clone, Copy)]
pub struct Proof<'a> {
    pub id: &'a str,
    pub token: &'a str,
}

impl Sessions {
    pub fn new(port: u16) -> Sessions {
        let cookie = format!("kvasir-session-{port}");
        Sessions { cookie, all: HashMap::new(), wrong: Vec::new() }
    }

    pub fn owns(&self, connection: ConnectionId) -> bool {
        self.all.contains_key(&connection)
    }

    pub fn is_empty(&self) -> bool {
        self.all.is_empty()
    }

    /// Begins a session, or says why not. It is answered once the server has looked at the
    /// password.
    pub fn log_in(
        &mut self,
        reactor: &mut Reactor,
        shared: &Shared,
        client: ConnectionId,
        user: &[u8],
        password: &[u8],
    ) -> Result<(), Answer> {
        self.wrong.retain(|at| at.elapsed() < WRONG_TIME);
        // What is being looked at may be wrong too.
        let tried = self.all.values().filter(|session| !session.is_logged_in).count();
        if self.wrong.len() + tried >= WRONG_MAX {
            return Err(Answer::refusal(429));
        }
        let failed = |_: std::io::Error| Answer::refusal(503);
        let (id, token) = (secret().map_err(failed)?, secret().map_err(failed)?);
        let connection = connect(reactor, shared).ok_or_else(|| Answer::refusal(503))?;
        let hello: [&[u8]; 7] =
            [b"HELLO", b"3", b"AUTH", user, password, b"SETNAME", b"kvasir-console"];
        let session = Session {
            id,
            token,
            user: String::from_utf8_lossy(user).into_owned(),
            is_logged_in: false,
            used: Instant::now(),
            pending: Some(Pending::new(client, vec!["hello"])),
            is_sending: true,
            waiting: None,
        };
        self.all.insert(connection, session);
        let bytes = encode_request(&hello);
        reactor.send(connection, Payload { bytes, shared: Vec::new() });
        Ok(())
    }

    /// The session's id, of a field Cookie.
    pub fn id_of<'f>(&self, field: &'f str) -> Option<&'f str> {
        let mut cookies = field.split(';').filter_map(|cookie| cookie.trim().split_once('='));
        cookies.find(|(name, _)| *name == self.cookie).map(|(_, id)| id)
    }

    /// The connection of a session that there is.
    pub fn find(&self, id: &str) -> Option<ConnectionId> {
        let is_it = |session: &Session| session.is_logged_in && session.id == id;
        self.all.iter().find(|(_, session)| is_it(session)).map(|(connection, _)| *connection)
    }

    /// As `find`, of who has shown the token too.
    pub fn prove(&self, proof: Proof<'_>) -> Option<ConnectionId> {
        self.find(proof.id).filter(|connection| self.all[connection].token == proof.token)
    }

    /// Who it is, for the page: its token and its user.
    pub fn describe(&self, connection: ConnectionId) -> Answer {
        let Session { token, user, .. } = &self.all[&connection];
        Answer::new(200, RESP, encode_request(&[token, user]))
    }

    /// Has the server answer the calls of these names, unless others are being answered.
    pub fn call(
        &mut self,
        reactor: &mut Reactor,
        connection: ConnectionId,
        client: ConnectionId,
        bytes: Vec<u8>,
        calls: Vec<&'static str>,
    ) -> Result<(), Answer> {
        let session = self.all.get_mut(&connection).expect("it was just found");
        if session.pending.is_some() {
            return Err(Answer::text(429, "the session's last calls are not answered yet\n"));
        }
        session.used = Instant::now();
        session.pending = Some(Pending::new(client, calls));
        session.waiting = Some(bytes);
        session.send_waiting(reactor, connection);
        Ok(())
    }

    pub fn sent(&mut self, reactor: &mut Reactor, connection: ConnectionId) {
        if let Some(session) = self.all.get_mut(&connection) {
            session.is_sending = false;
            session.send_waiting(reactor, connection);
        }
    }

    /// Takes what the server says; the answer for a client once there is one.
    pub fn received(
        &mut self,
        reactor: &mut Reactor,
        connection: ConnectionId,
        bytes: &[u8],
        is_tls: bool,
    ) -> Option<(ConnectionId, Answer)> {
        let session = self.all.get_mut(&connection)?;
        let pending = session.pending.as_mut()?;
        match pending.replies.receive(bytes) {
            Ok(true) => {}
            Ok(false) => return None,
            // The server has said what is no reply: what follows can't be told apart.
            Err(_) => {
                let client = pending.client;
                self.end(reactor, connection);
                return Some((client, Answer::refusal(500)));
            }
        }
        let Pending { client, replies, .. } = session.pending.take()?;
        if session.is_logged_in {
            return Some((client, Answer::new(200, RESP, replies.into_bytes())));
        }
        if replies.is_error() {
            self.wrong.push(Instant::now());
            self.end(reactor, connection);
            return Some((client, Answer::new(403, RESP, replies.into_bytes())));
        }
        session.is_logged_in = true;
        // Only who has the right password takes a place.
        if let Some(other) = self.one_too_many(connection) {
            self.end(reactor, other);
        }
        let session = &self.all[&connection];
        let cookie = cookie(&self.cookie, &session.id, is_tls);
        Some((client, self.describe(connection).with("Set-Cookie", cookie)))
    }

    /// Whose place a new session takes, if there is no other.
    fn one_too_many(&self, new: ConnectionId) -> Option<ConnectionId> {
        let others =
            || self.all.iter().filter(|(other, session)| session.is_logged_in && **other != new);
        if others().count() < SESSIONS_MAX {
            return None;
        }
        let user = &self.all.get(&new)?.user;
        let oldest_first = |(_, session): &(&ConnectionId, &Session)| {
            let count = others().filter(|(_, other)| other.user == session.user).count();
            (session.user != *user, Reverse(count), session.used)
        };
        others().min_by_key(oldest_first).map(|(connection, _)| *connection)
    }

    /// The server has closed a session's connection: its user was deleted, or it was killed.
    pub fn lost(
        &mut self,
        reactor: &mut Reactor,
        connection: ConnectionId,
    ) -> Option<(ConnectionId, Answer)> {
        let pending = self.all.get_mut(&connection).and_then(|session| session.pending.take());
        self.end(reactor, connection);
        pending.map(|pending| (pending.client, Answer::refusal(401)))
    }

    /// Ends sessions whose time is over. Who waits for an answer is told so.
    pub fn end_late(&mut self, reactor: &mut Reactor) -> Vec<(ConnectionId, Answer)> {
        let is_late = |session: &Session| match &session.pending {
            Some(pending) => pending.since.elapsed() >= ANSWER_TIME,
            None => session.used.elapsed() >= IDLE_TIME,
        };
        let late = self.all.iter().filter(|(_, session)| is_late(session));
        let late: Vec<_> = late.map(|(connection, _)| *connection).collect();
        let text = format!("a call was not answered within {} s\n", ANSWER_TIME.as_secs());
        let lost = late.into_iter().filter_map(|connection| self.lost(reactor, connection));
        lost.map(|(client, _)| (client, Answer::text(401, &text[..]))).collect()
    }

    pub fn end(&mut self, reactor: &mut Reactor, connection: ConnectionId) {
        self.all.remove(&connection);
        reactor.close(connection);
    }
}

/// The media type of calls and replies.
pub const RESP: &str = "application/octet-stream";

fn cookie(name: &str, id: &str, is_tls: bool) -> String {
    let secure = if is_tls { "; Secure" } else { "" };
    format!("{name}={id}; Path=/; HttpOnly; SameSite=Strict{secure}")
}

fn secret() -> std::io::Result<String> {
    let mut bytes = [0; 16];
    random::fill(&mut bytes)?;
    Ok(bytes.iter().map(|byte| format!("{byte:02x}")).collect())
}

/// A connection to this server, as a client that comes over a unix socket has one.
fn connect(reactor: &mut Reactor, shared: &Shared) -> Option<ConnectionId> {
    let (ours, theirs) = UnixStream::pair().ok()?;
    let place = shared.clients.take_place(&shared.config(), false)?;
    let worker = shared.workers.least_busy();
    shared.workers[worker].connection_count.fetch_add(1, Relaxed);
    let message = Message::Adopt { socket: theirs.into(), kind: ListenerKind::Client, place };
    shared.workers.send(worker, message);
    Some(reactor.register(ours.into()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cookies_of_others_are_passed_over() {
        let sessions = Sessions::new(1);
        let id = sessions.id_of("a=b; kvasir-session-2=3; kvasir-session-1=12; c");
        assert_eq!(id, Some("12"));
        assert_eq!(sessions.id_of("kvasir-session-1"), None);
        let cookie = cookie("kvasir-session-1", "12", true);
        assert!(cookie.ends_with("; Secure"));
        assert_eq!(sessions.id_of(&cookie), Some("12"));
    }
}
