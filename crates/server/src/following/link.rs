//! The connection to the primary: what both say before data comes, and the bytes behind that.

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use kvasir_persistence::aof::record::{OFFSET_MAX, is_history};
use kvasir_reactor::clock;
use kvasir_resp::encode::encode_request;

use crate::clients::{Client, Origin};
use crate::following::WORKER;
use crate::following::host::Wire;
use crate::following::wire::is_pause;
use crate::log::notice;
use crate::replicas::form::{self, Form};
use crate::run::pause;
use crate::state::shared::Shared;

/// How often what is due by the clock is looked at.
pub const LOOK: Duration = Duration::from_millis(100);
/// How often the primary is told how far this is.
pub const ACKNOWLEDGE: Duration = Duration::from_secs(1);
/// Read at once.
const READ_SIZE: usize = 256 << 10;
/// A buffer that has grown larger is not kept.
const KEPT_MAX: usize = 4 << 20;
/// What is read ahead while calls have to wait.
const PAUSED_MAX: usize = 16 << 20;
/// No more is unpacked at once.
const UNPACKED_MAX: usize = 1 << 20;
/// What a line may take.
const LINE_MAX: usize = 64 << 10;
/// What this server can load is what this Valkey writes.
const VERSION: &str = "9.0.0";
/// No more is shown of what the primary says.
const SHOWN_MAX: usize = 100;
const ANOTHER: &str = "another one is to be followed";

pub struct Link<W> {
    pub shared: &'static Shared,
    version: u64,
    wire: W,
    /// What was received and not used.
    bytes: Vec<u8>,
    used: usize,
    /// What is received comes here first.
    buffer: Box<[u8]>,
    /// What was received of packed pieces, once the stream comes in such.
    packed: Option<Vec<u8>>,
    heard_ns: u64,
    /// When the primary was last told; `None`: it is not yet to be told.
    acknowledged_ns: Option<u64>,
    /// As CLIENT LIST shows it.
    client: Arc<Client>,
}

impl<W> Drop for Link<W> {
    fn drop(&mut self) {
        self.shared.clients.remove(self.client.id);
    }
}

/// What the primary says to the wish to go on.
pub enum Answer {
    /// The stream goes on; the history may have another name.
    GoesOn { id: Option<String>, form: Form },
    /// All data comes, of a moment in a history.
    Begins {
        id: String,
        offset: u64,
        form: Form,
        /// Behind what has come of it before.
        goes_on: bool,
    },
    /// It does not take this server's place.
    Refuses,
}

impl<W: Wire> Link<W> {
    pub fn over(shared: &'static Shared, wire: W, version: u64) -> Result<Link<W>, String> {
        let text = |error: std::io::Error| error.to_string();
        let (client, cut_off) = (client(shared, &wire).map_err(text)?, wire.cut_off());
        let id = client.id;
        let link = Link {
            shared,
            version,
            wire,
            bytes: Vec::new(),
            used: 0,
            buffer: vec![0; READ_SIZE].into(),
            packed: None,
            heard_ns: clock::monotonic_ns(),
            acknowledged_ns: None,
            client,
        };
        match shared.replication.upstream.hold(version, id, cut_off.map_err(text)?) {
            true => Ok(link),
            false => Err(ANOTHER.into()),
        }
    }

    pub fn client(&self) -> &Arc<Client> {
        &self.client
    }

    /// Whether it is still the one that is wanted.
    pub fn is_wanted(&self) -> bool {
        let is_ending = !self.shared.saving.loading.is_wanted();
        !is_ending && self.shared.replication.upstream.is_current(self.version)
    }

    /// Agrees with the primary on what it is to send; `rest`: of a snapshot, if it has that still.
    pub async fn greet(&mut self, rest: Option<String>) -> Result<Answer, String> {
        let config = self.shared.config();
        let config = &config.replication;
        self.send(&["PING"])?;
        let answer = self.line().await?;
        let is_fine = |start| answer.starts_with(start);
        if !["+", "-NOAUTH", "-NOPERM", "-ERR operation not permitted"].into_iter().any(is_fine) {
            return Err(format!("it answers PING with {}", shown(&answer)));
        }
        if !config.primary_auth.is_empty() {
            let (user, password) = (&config.primary_user[..], &config.primary_auth[..]);
            match user.is_empty() {
                true => self.send(&[&b"AUTH"[..], password])?,
                false => self.send(&[&b"AUTH"[..], user, password])?,
            }
            let answer = self.line().await?;
            if answer.starts_with('-') {
                return Err(format!(
                    "Unable to AUTH to MASTER: it refuses the password: {}",
                    shown(&answer)
                ));
            }
        }
        let all = self.shared.config();
        let port = match config.announce_port {
            0 if all.tls.replication && all.tls.port != 0 => all.tls.port,
            0 => all.port,
            port => port,
        };
        self.tell(&["REPLCONF", "listening-port", &port.to_string()]).await?;
        if !config.announce_ip.is_empty() {
            let ip = String::from_utf8_lossy(&config.announce_ip).into_owned();
            self.tell(&["REPLCONF", "ip-address", &ip]).await?;
        }
        self.tell(&["REPLCONF", "capa", "eof", "capa", "psync2", "capa", form::PACKED]).await?;
        self.tell(&["REPLCONF", "version", VERSION]).await?;
        if let Some(rest) = rest {
            self.tell(&["REPLCONF", form::RESUME, &rest]).await?;
        }
        self.ask_for_data().await
    }

    /// Says something that the primary need not understand.
    async fn tell(&mut self, words: &[&str]) -> Result<(), String> {
        self.send(words)?;
        self.line().await.map(drop)
    }

    async fn ask_for_data(&mut self) -> Result<Answer, String> {
        let (log, replication) = (&self.shared.keyspace.log, &self.shared.replication);
        let (id, offset) = match replication.tail.is_kept() {
            false => ("?".to_owned(), "-1".to_owned()),
            true => (replication.history().id, (log.end() + 1).to_string()),
        };
        let takes_over = self.shared.replication.failover.is_in_progress();
        match takes_over {
            true => self.send(&["PSYNC", &id, &offset, "FAILOVER"])?,
            false => self.send(&["PSYNC", &id, &offset])?,
        }
        let answer = self.line().await?;
        let words: Vec<_> = answer.split(' ').collect();
        let (words, goes_on) = match words.split_last() {
            Some((&form::RESUME, words)) => (words, true),
            _ => (&words[..], false),
        };
        let (words, form) = match words.split_last() {
            Some((&form::PACKED, words)) => (words, Form::Packed),
            _ => (words, Form::Plain),
        };
        match words {
            ["+CONTINUE"] => Ok(Answer::GoesOn { id: None, form }),
            ["+CONTINUE", id] => {
                let id = history(id)?;
                Ok(Answer::GoesOn { id: Some(id.to_owned()), form })
            }
            ["+FULLRESYNC", id, offset] => {
                let (id, offset) = (history(id)?, place(offset)?);
                notice!("full synchronization from the primary id={id} offset={offset}");
                Ok(Answer::Begins { id: id.to_owned(), offset, form, goes_on })
            }
            _ if takes_over => Ok(Answer::Refuses),
            _ => Err(format!("it answers PSYNC with {}", shown(&answer))),
        }
    }

    pub fn send<T: AsRef<[u8]>>(&mut self, words: &[T]) -> Result<(), String> {
        self.wire.write_all(&encode_request(words)).map_err(|error| error.to_string())
    }

    /// The next line, without its end. Empty ones say that the link is alive.
    pub async fn line(&mut self) -> Result<String, String> {
        loop {
            if let Some(len) = self.unused().iter().position(|byte| *byte == b'\n') {
                let line = self.unused()[..len].to_vec();
                self.pass(len + 1);
                let line = line.strip_suffix(b"\r").unwrap_or(&line);
                if !line.is_empty() {
                    return Ok(String::from_utf8_lossy(line).into_owned());
                }
            } else if self.unused().len() > LINE_MAX {
                return Err("it sends a line without an end".into());
            } else {
                self.receive().await?;
            }
        }
    }

    pub fn unused(&self) -> &[u8] {
        &self.bytes[self.used..]
    }

    /// So many bytes are used.
    pub fn pass(&mut self, len: usize) {
        self.used += len;
        if self.used == self.bytes.len() {
            self.bytes.clear();
            self.bytes.shrink_to(KEPT_MAX);
            self.used = 0;
        }
    }

    /// The stream comes in this form, from what is not used yet on.
    ///
    /// # Errors
    ///
    /// If that is not sound.
    pub fn begin_stream(&mut self, form: Form) -> Result<(), String> {
        if form == Form::Packed {
            self.packed = Some(self.bytes.split_off(self.used));
            self.pass(0);
            self.unpack()?;
        }
        Ok(())
    }

    /// Unpacks the pieces that are whole by now.
    fn unpack(&mut self) -> Result<(), String> {
        let Some(packed) = &mut self.packed else { return Ok(()) };
        let mut taken = 0;
        // A little that comes may be much when it is unpacked. One call may be longer than that.
        let before = self.bytes.len();
        while self.bytes.len() - before < UNPACKED_MAX
            && let Some((piece, size)) =
                form::take_packed(&packed[taken..]).map_err(|unsound| unsound.to_string())?
        {
            self.bytes.extend_from_slice(&piece);
            taken += size;
        }
        packed.drain(..taken);
        Ok(())
    }

    /// Waits for more bytes, and does meanwhile what is due by the clock.
    pub async fn receive(&mut self) -> Result<(), String> {
        self.bytes.drain(..std::mem::take(&mut self.used));
        let len = self.bytes.len();
        loop {
            if !self.is_wanted() {
                return Err(ANOTHER.into());
            }
            self.acknowledge_in_time()?;
            self.unpack()?;
            if self.bytes.len() > len {
                return Ok(());
            }
            match self.read().await {
                Ok(0) => return Err("it has closed the connection".into()),
                Ok(_) => {
                    self.unpack()?;
                    if self.bytes.len() > len {
                        return Ok(());
                    }
                }
                Err(error) if is_pause(error.kind()) => self.check_silence()?,
                Err(error) => return Err(error.to_string()),
            }
        }
    }

    async fn read(&mut self) -> std::io::Result<usize> {
        let size = self.wire.read(&mut self.buffer).await?;
        self.heard_ns = clock::monotonic_ns();
        let replication = &self.shared.replication;
        replication.upstream.heard_ms.store(clock::now_unix_ms(), Relaxed);
        replication.stats.received_bytes.fetch_add(size as u64, Relaxed);
        let bytes = self.packed.as_mut().unwrap_or(&mut self.bytes);
        bytes.extend_from_slice(&self.buffer[..size]);
        Ok(size)
    }

    /// While clients are paused, or the log has no room for more since the disk or a replica of
    /// this server is slow, calls of the primary wait here; false: it is not wanted any more.
    pub async fn wait_for_room(&mut self) -> Result<bool, String> {
        if !self.has_to_wait() {
            return Ok(true);
        }
        let result = self.read_ahead().await;
        self.shared.replication.upstream.unused.store(0, Relaxed);
        result
    }

    fn has_to_wait(&self) -> bool {
        let (shared, config) = (self.shared, self.shared.config());
        let is_paused = || shared.pause.is_on() && shared.pauses(clock::now_unix_ms());
        // The primary does not hear of a disk that takes nothing, as clients do.
        let waiting_bytes = shared.aof.waiting_bytes(&shared.keyspace.log);
        is_paused() || waiting_bytes > config.aof.buffer_limit || pause::is_behind(shared, &config)
    }

    /// Takes what comes meanwhile, as far as there is room for it.
    async fn read_ahead(&mut self) -> Result<bool, String> {
        while self.has_to_wait() {
            if !self.is_wanted() {
                return Ok(false);
            }
            self.acknowledge_in_time()?;
            if self.unused().len() < PAUSED_MAX {
                match self.read().await {
                    Ok(0) => return Err("it has closed the connection".into()),
                    Ok(_) => self.unpack()?,
                    Err(error) if is_pause(error.kind()) => self.check_silence()?,
                    Err(error) => return Err(error.to_string()),
                }
            } else {
                // Whether it is silent can't be told without taking more.
                self.wire.rest(LOOK).await;
                self.heard_ns = clock::monotonic_ns();
            }
            let unused = self.unused().len() as u64;
            self.shared.replication.upstream.unused.store(unused, Relaxed);
        }
        Ok(true)
    }

    fn check_silence(&self) -> Result<(), String> {
        if since(self.heard_ns) > patience(self.shared) {
            let is_greeting = self.acknowledged_ns.is_none();
            return Err(match is_greeting {
                true => "Timeout connecting to the MASTER: it is silent".into(),
                false => "it is silent".into(),
            });
        }
        Ok(())
    }

    /// Does something that takes long, and has the primary hear meanwhile that the link is alive.
    pub fn stay_alive<R>(&mut self, work: impl FnOnce() -> R) -> R {
        let result = self.wire.alive_during(work);
        self.heard_ns = clock::monotonic_ns();
        result
    }

    /// Rests, and has the primary hear now and then that the link is alive.
    pub async fn rest_alive(&mut self, time: Duration) {
        self.wire.rest(time).await;
        if since(self.heard_ns) >= ACKNOWLEDGE {
            self.heard_ns = clock::monotonic_ns();
            // Without it the primary may lose patience, and that is all.
            let _ = self.wire.write_all(b"\n");
        }
    }

    fn acknowledge_in_time(&mut self) -> Result<(), String> {
        match self.acknowledged_ns {
            Some(last_ns) if since(last_ns) >= ACKNOWLEDGE => self.acknowledge(),
            _ => Ok(()),
        }
    }

    /// Tells the primary how far the stream is executed, and is on disk.
    pub fn acknowledge(&mut self) -> Result<(), String> {
        self.acknowledged_ns = Some(clock::monotonic_ns());
        let shared = self.shared;
        let end = shared.keyspace.log.end().to_string();
        match shared.aof.counts() {
            false => self.send(&["REPLCONF", "ACK", &end]),
            true => {
                let durable = shared.aof.durable().to_string();
                self.send(&["REPLCONF", "ACK", &end, "FACK", &durable])
            }
        }
    }
}

/// The name of a history, as a primary says it.
fn history(word: &str) -> Result<&str, String> {
    let what = || format!("it names a history that is none: {}", shown(word));
    is_history(word).then_some(word).ok_or_else(what)
}

/// A place in one.
fn place(word: &str) -> Result<u64, String> {
    let is_number = !word.is_empty() && word.bytes().all(|byte| byte.is_ascii_digit());
    let offset = word.parse().ok().filter(|offset| is_number && *offset <= OFFSET_MAX);
    offset.ok_or_else(|| format!("it names an offset that is none: {}", shown(word)))
}

/// What the other end has said, as the log has it.
pub fn shown(text: &str) -> String {
    let start: String = text.chars().take(SHOWN_MAX).collect();
    let rest = if start.len() < text.len() { "..." } else { "" };
    format!("{}{rest}", start.escape_debug())
}

/// The link as a client of this server, which can be listed and killed as any other.
fn client(shared: &'static Shared, wire: &impl Wire) -> std::io::Result<Arc<Client>> {
    let (peer, local) = wire.addresses()?;
    let origin = Origin { address: peer.into(), local_address: local.into(), ..Origin::default() };
    // It takes no client's place.
    shared.clients.try_reserve(usize::MAX);
    let client = shared.clients.add(WORKER, origin, clock::now_unix_ms());
    client.is_primary.store(true, Relaxed);
    Ok(client)
}

/// How long the primary may be silent.
pub fn patience(shared: &Shared) -> Duration {
    Duration::from_secs(shared.config().replication.timeout)
}

fn since(ns: u64) -> Duration {
    Duration::from_nanos(clock::monotonic_ns().saturating_sub(ns))
}
