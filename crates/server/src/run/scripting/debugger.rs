//! Scripts that are debugged: SCRIPT DEBUG, and how EVAL lets its client step through a script.
//!
//! What the debugger does is `kvasir-lua`'s business; here are its client, who is on the connection
//! that has called the script, and the gate, which is closed for as long as it runs. A script that
//! waits for its client is busy: its worker serves others meanwhile, as far as they may be served
//! beside a script, and they may end it. A session that is forked in Redis undoes here what it has
//! done (`debugger_overlay`); one in step (SYNC) is a script as any other.

use std::time::{Duration, Instant};

use kvasir_keyspace::error::Error;
use kvasir_lua::debugger::lines_reply;
use kvasir_lua::host::Tick;
use kvasir_reactor::{ConnectionId, Event, Payload};

use crate::clients::Client;
use crate::log::notice;
use crate::run::scripting::busy;
use crate::run::scripting::call;
use crate::run::scripting::debugger_overlay::Overlay;
use crate::run::scripting::host::Running;
use crate::run::session::Session;
use crate::scripts::state::DebugMode;

/// A script that is debugged.
pub struct Debugging {
    /// What it undoes in the end, if it is forked.
    pub overlay: Option<Overlay>,
    /// What its client was not told when it ended.
    pub left: Vec<Vec<u8>>,
    /// Nobody reads what it says.
    is_deaf: bool,
}

/// How long a client may take to read what it is sent, as in Redis.
const SENDING: Duration = Duration::from_secs(5);

/// How long is waited between two looks at whether the script has to end.
const LOOK_EVERY: Duration = Duration::from_millis(20);

/// As in Redis, of scripts that are limited in time by no option.
const PATIENCE_MS: u64 = 5000;

/// EVAL and EVAL_RO for a client that debugs.
pub fn eval(
    mut session: Session,
    mode: DebugMode,
    is_read_only: bool,
) -> (Session, Result<(), Error>) {
    if session.is_held() {
        let text = "ERR Lua debugging is not possible within a transaction";
        return (session, Err(Error::fixed(text)));
    }
    let overlay = (mode == DebugMode::Forked).then(Overlay::default);
    session.debugging = Some(Box::new(Debugging { overlay, left: Vec::new(), is_deaf: false }));
    notice!("debugging a script mode={mode:?} client={}", session.connection.client.id);
    let (mut session, result) = call::run_eval(session, is_read_only);
    let mut lines = session.debugging.as_mut().map_or_else(Vec::new, |it| it.left.split_off(0));
    lines.push(b"<endsession>".to_vec());
    session.send_to_debugger(lines_reply(&lines));
    session.debugging = None;
    session.connection.is_closing = true;
    notice!("a script is debugged no more client={}", session.connection.client.id);
    (session, result)
}

/// How long a script that is debugged runs before it is taken for one that does not end.
pub fn patience(session: &Session) -> Duration {
    let threshold_ms = session.worker.core.config.busy_reply_threshold;
    Duration::from_millis(if threshold_ms == 0 { PATIENCE_MS } else { threshold_ms })
}

impl Running {
    /// Waits for what the client says to the debugger; nothing, if it is gone. Fails if the script
    /// has to end.
    pub fn hear_debugger(&mut self) -> Result<Vec<u8>, &'static str> {
        busy::become_busy(self);
        loop {
            if let Tick::Kill(text) = busy::tick(self) {
                return Err(text);
            }
            let bytes = self.session.take_input();
            if !bytes.is_empty() || self.session.is_deaf() {
                return Ok(bytes);
            }
            self.session.serve_others(LOOK_EVERY);
        }
    }

    /// Sends what the debugger says.
    pub fn tell_debugger(&mut self, bytes: Vec<u8>) {
        busy::become_busy(self);
        self.session.send_to_debugger(bytes);
    }
}

impl Session {
    fn is_deaf(&self) -> bool {
        self.debugging.as_ref().is_none_or(|debugging| debugging.is_deaf)
    }

    fn is_gone(&self) -> bool {
        let id = self.connection.id;
        self.worker.events.iter().any(|event| is_end(event, id))
    }

    /// What has come on the connection since the script began.
    fn take_input(&mut self) -> Vec<u8> {
        if self.is_gone() || !self.decrypt() {
            self.give_up();
        }
        let wire = &mut self.connection.wire;
        let bytes = std::mem::take(&mut wire.input).to_vec();
        if wire.is_paused {
            wire.is_paused = false;
            self.worker.reactor.resume(self.connection.id);
        }
        bytes
    }

    /// Takes up records that have come; says whether more may come.
    fn decrypt(&mut self) -> bool {
        let Session { worker, connection, .. } = self;
        let id = connection.id;
        let mut is_open = true;
        while let Some(at) = worker.events.iter().position(|event| is_record(event, id)) {
            let Event::Received { buffer, .. } = worker.events.remove(at) else {
                unreachable!("it was looked at");
            };
            if let Some(tls) = connection.wire.tls.as_deref_mut() {
                let bytes = worker.reactor.bytes(&buffer);
                let result = tls.session.receive(bytes, connection.wire.input.end());
                is_open &= result.is_ok() && !tls.session.is_ended;
            }
            worker.reactor.recycle(buffer);
        }
        is_open
    }

    fn give_up(&mut self) {
        self.debugging.iter_mut().for_each(|debugging| debugging.is_deaf = true);
    }

    /// Sends bytes and waits until they are sent, as far as the client takes them.
    fn send_to_debugger(&mut self, bytes: Vec<u8>) {
        let deadline = Instant::now() + SENDING;
        if self.is_deaf() || !self.await_sent(deadline) {
            return;
        }
        if self.connection.wire.tls.is_none() {
            self.send_payload(bytes, deadline);
        } else if self.send_records(deadline)
            && let Some(tls) = self.connection.wire.tls.as_deref_mut()
            && tls.session.takes_replies()
        {
            tls.session.queue(Payload::from(bytes));
            self.send_records(deadline);
        }
    }

    /// Encrypts and sends what there is; says whether the client took it.
    fn send_records(&mut self, deadline: Instant) -> bool {
        while let Some(tls) = self.connection.wire.tls.as_deref_mut() {
            let mut records = Vec::new();
            let result = tls.session.send(&mut records, false);
            if result.is_ok() && records.is_empty() {
                return true;
            }
            if result.is_err() || !self.send_payload(records, deadline) {
                break;
            }
        }
        self.give_up();
        false
    }

    fn send_payload(&mut self, bytes: Vec<u8>, deadline: Instant) -> bool {
        let stats = &self.shared().workers[self.worker.index].stats;
        stats.output_bytes.add(bytes.len() as u64);
        stats.writes.add(1);
        Client::add(&self.connection.client.sent_bytes, bytes.len() as u64);
        self.connection.output.is_sending = true;
        self.connection.output.sending_bytes = bytes.len();
        self.worker.reactor.send(self.connection.id, Payload::from(bytes));
        self.await_sent(deadline)
    }

    /// Waits until nothing is being sent any more; says whether that was in time.
    fn await_sent(&mut self, deadline: Instant) -> bool {
        while self.connection.output.is_sending {
            let id = self.connection.id;
            if let Some(at) = self.worker.events.iter().position(|event| is_report(event, id)) {
                let Event::Sent { result, payload, .. } = self.worker.events.remove(at) else {
                    unreachable!("it was looked at");
                };
                self.worker.spare(payload.bytes);
                self.connection.output.is_sending = false;
                if result.is_ok() {
                    return true;
                }
            }
            if !self.connection.output.is_sending || self.is_gone() || Instant::now() > deadline {
                self.give_up();
                return false;
            }
            self.serve_others(LOOK_EVERY);
        }
        true
    }
}

fn is_end(event: &Event, id: ConnectionId) -> bool {
    matches!(event, Event::Closed { connection, .. } if *connection == id)
}

fn is_record(event: &Event, id: ConnectionId) -> bool {
    matches!(event, Event::Received { connection, .. } if *connection == id)
}

fn is_report(event: &Event, id: ConnectionId) -> bool {
    matches!(event, Event::Sent { connection, .. } if *connection == id)
}
