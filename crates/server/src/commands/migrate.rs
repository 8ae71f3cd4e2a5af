//! MIGRATE: moves keys to another server.
//!
//! Keys are not held while the other server is spoken to, since that may take long. What was sent
//! is deleted only if it is still what is here; else it is sent again. In a slot that moves nobody
//! else may write to what is on its way (`in_flight`).

use std::io::{ErrorKind, Read, Write};
use std::net::{TcpStream, ToSocketAddrs};
use std::time::Duration;

use kvasir_config::Config;
use kvasir_keyspace::commands::options::integer;
use kvasir_keyspace::error::Error;
use kvasir_keyspace::place::DbIndex;
use kvasir_keyspace::plan::KeyAt;
use kvasir_keyspace::spec::{Argument, Begin, Categories, Find, Flags, KeyFlags, KeySpec, Spec};
use kvasir_reactor::clock;
use kvasir_resp::args::{Args, ArgsBuf};
use kvasir_resp::encode::encode_request;

use crate::calls::routing::TRY_AGAIN;
use crate::net::tls::client;
use crate::run::held_keys::Dumped;
use crate::run::server::{ServerCommand, ServerRun};
use crate::run::session::Session;

pub static COMMANDS: &[&ServerCommand] = &[&MIGRATE];

/// A key that changes each time that it is sent is held in the end.
const ROUNDS_MAX: usize = 8;
/// What a timeout that is none means.
const TIMEOUT_DEFAULT_MS: i64 = 1000;
/// An answer is a line.
const ANSWER_MAX: usize = 64 << 10;

const MOVED: KeyFlags = KeyFlags::RW.union(KeyFlags::ACCESS).union(KeyFlags::DELETE);

static MIGRATE: ServerCommand = ServerCommand {
    spec: Spec {
        name: "migrate",
        summary: "Moves keys to another server.",
        since: "2.6.0",
        complexity: "That of DUMP and DEL here, and of RESTORE there; O(N) in the bytes sent.",
        arity: -6,
        flags: Flags::WRITE,
        categories: Categories::DANGEROUS,
        keys: &[
            KeySpec::range(MOVED, 3, 0, 1),
            KeySpec {
                flags: MOVED.union(KeyFlags::INCOMPLETE),
                notes: None,
                begin: Begin::Keyword { word: "KEYS", from: -2 },
                find: Find::Range { last: -1, step: 1, limit: 0 },
            },
        ],
        tips: &["nondeterministic_output"],
        history: &[
            ("3.0.0", "The words `COPY` and `REPLACE`."),
            ("3.0.6", "The word `KEYS`."),
            ("4.0.7", "The word `AUTH`."),
            ("6.0.0", "The word `AUTH2`."),
        ],
        arguments: &[
            Argument::string("host"),
            Argument::integer("port"),
            Argument::one_of(
                "key_or_empty_string",
                &[Argument::key("key", 0), Argument::word("empty_string", "")],
            ),
            Argument::integer("destination-db"),
            Argument::integer("timeout"),
            Argument::word("copy", "COPY").since("3.0.0").optional(),
            Argument::word("replace", "REPLACE").since("3.0.0").optional(),
            Argument::one_of(
                "authentication",
                &[
                    Argument::string("password").token("AUTH").since("4.0.7").optional(),
                    Argument::block(
                        "username_password",
                        &[Argument::string("username"), Argument::string("password")],
                    )
                    .token("AUTH2")
                    .since("6.0.0")
                    .optional(),
                ],
            )
            .optional(),
            Argument::key("key", 1).token("KEYS").since("3.0.6").optional().multiple(),
        ],
        ..Spec::BLANK
    },
    run: ServerRun::Session(migrate),
};

const KEY_AND_KEYS: Error = Error::fixed(
    "ERR When using MIGRATE KEYS option, the key argument must be set to the empty string",
);
const NO_CONNECTION: Error = Error::fixed("IOERR error or timeout connecting to the client");
const NO_ANSWER: Error = Error::fixed("IOERR error or timeout reading to target instance");

/// What a call asks for.
struct Wish {
    host: String,
    port: u16,
    db: i64,
    timeout: Duration,
    copies: bool,
    replaces: bool,
    /// User, if there is one, and password.
    auth: Vec<Vec<u8>>,
    keys: Vec<Vec<u8>>,
}

impl Wish {
    fn parse(args: Args<'_>) -> Result<Wish, Error> {
        let (mut copies, mut replaces, mut auth) = (false, false, Vec::new());
        let mut keys = vec![args[3].to_vec()];
        let mut at = 6;
        while at < args.len() {
            let left = args.len() - at - 1;
            let word = |ahead: usize| args[at + ahead].to_vec();
            match args[at].to_ascii_lowercase().as_slice() {
                b"copy" => copies = true,
                b"replace" => replaces = true,
                b"auth" if left >= 1 => {
                    auth = vec![word(1)];
                    at += 1;
                }
                b"auth2" if left >= 2 => {
                    auth = vec![word(1), word(2)];
                    at += 2;
                }
                b"keys" => {
                    if !args[3].is_empty() {
                        return Err(KEY_AND_KEYS);
                    }
                    keys = args.from(at + 1).iter().map(<[u8]>::to_vec).collect();
                    break;
                }
                _ => return Err(Error::SYNTAX),
            }
            at += 1;
        }
        let (timeout_ms, db) = (integer(&args[5])?, integer(&args[4])?);
        let timeout_ms = if timeout_ms <= 0 { TIMEOUT_DEFAULT_MS } else { timeout_ms };
        Ok(Wish {
            host: String::from_utf8_lossy(&args[1]).into_owned(),
            port: std::str::from_utf8(&args[2])
                .ok()
                .and_then(|port| port.parse().ok())
                .unwrap_or(0),
            db,
            timeout: Duration::from_millis(timeout_ms.unsigned_abs()),
            copies,
            replaces,
            auth,
            keys,
        })
    }
}

fn migrate(mut session: Session) -> (Session, Result<(), Error>) {
    let result = Wish::parse(session.args()).and_then(|wish| run(&mut session, wish));
    (session, result)
}

/// Holds keys of the connection's database, unless somebody further out holds what there is.
fn hold(session: &mut Session, keys: &[Vec<u8>]) -> Result<(), Error> {
    let db = session.connection.db;
    let args: ArgsBuf = keys.iter().collect();
    let places: Vec<KeyAt> =
        (0..args.len()).map(|arg| KeyAt::new(args.as_args(), arg, db)).collect();
    // It may be a while since the call came.
    session.core().env.now_ms = clock::now_unix_ms();
    session.hold_keys(&places)
}

fn run(session: &mut Session, wish: Wish) -> Result<(), Error> {
    let (db, is_within) = (session.connection.db, session.is_held());
    let mut keys = wish.keys.clone();
    let mut target: Option<Target> = None;
    let (mut replaces, mut refusal) = (wish.replaces, None);
    let node = session.shared().cluster.as_ref();
    let mut sent = None;
    for round in 1..=ROUNDS_MAX {
        if !is_within {
            hold(session, &keys)?;
        }
        let found = keys
            .iter()
            .filter_map(|key| session.dump_key(db, key).map(|dumped| (key.clone(), dumped)));
        let found: Vec<(Vec<u8>, Dumped)> = found.collect();
        if let Some(node) = node.filter(|_| sent.is_none() && !is_within && !wish.copies) {
            sent = Some(node.in_flight.begin(&keys).ok_or(TRY_AGAIN)?);
        }
        let stays_held = is_within || round == ROUNDS_MAX;
        if !stays_held {
            session.let_go();
            session.release_others();
        }
        if found.is_empty() {
            if round == 1 {
                session.connection.reply.simple("NOKEY");
                return Ok(());
            }
            break;
        }
        let open = match target.take() {
            Some(target) => target,
            None => Target::connect(&wish, &session.shared().config())?,
        };
        let open = target.insert(open);
        let now_ms = clock::now_unix_ms();
        let (moved, refused) = open.restore(&found, node.is_some(), replaces, now_ms)?;
        refusal = refusal.or(refused);
        if wish.copies {
            break;
        }
        let moved: Vec<(Vec<u8>, Dumped)> =
            found.into_iter().zip(moved).filter(|(_, moved)| *moved).map(|(key, _)| key).collect();
        keys = forget(session, db, &moved, stays_held)?;
        if keys.is_empty() {
            break;
        }
        // What is there by now is what was sent before.
        replaces = true;
    }
    match refusal {
        Some(text) => Err(Error::new(format!("ERR Target instance replied with error: {text}"))),
        None => {
            session.connection.reply.ok();
            Ok(())
        }
    }
}

/// Deletes what was moved and has not changed since; says what has.
fn forget(
    session: &mut Session,
    db: DbIndex,
    moved: &[(Vec<u8>, Dumped)],
    is_held: bool,
) -> Result<Vec<Vec<u8>>, Error> {
    let names: Vec<Vec<u8>> = moved.iter().map(|(key, _)| key.clone()).collect();
    if names.is_empty() {
        return Ok(names);
    }
    if !is_held {
        hold(session, &names)?;
        check_still_writes(session)?;
    }
    let mut changed = Vec::new();
    let mark = session.connection.reply.mark();
    for (key, sent) in moved {
        match session.dump_key(db, key) {
            Some(now) if now != *sent => changed.push(key.clone()),
            None => {}
            Some(_) => {
                let args: ArgsBuf = [&b"DEL"[..], key].into_iter().collect();
                if let Ok(entry) = session.shared().table.resolve(args.as_args()) {
                    session.call(entry, args.as_args())?;
                }
            }
        }
    }
    session.connection.reply.truncate(mark);
    if !is_held {
        session.let_go();
    }
    Ok(changed)
}

/// While the other server was waited for this one may have become a replica, or have begun to hold
/// its writes back for one that takes over: then the keys stay.
fn check_still_writes(session: &mut Session) -> Result<(), Error> {
    let now_ms = session.core().env.now_ms;
    let may_not = session.check_replicas().is_err() || session.shared().pauses(now_ms);
    if may_not { Err(NO_ANSWER) } else { Ok(()) }
}

/// With TLS or without.
trait Stream: Read + Write {}

impl<T: Read + Write> Stream for T {}

/// The server that keys go to.
struct Target {
    stream: Box<dyn Stream>,
    received: Vec<u8>,
}

impl Target {
    fn connect(wish: &Wish, config: &Config) -> Result<Target, Error> {
        let addresses = (&*wish.host, wish.port).to_socket_addrs().map_err(|_| NO_CONNECTION)?;
        let connect = |address| TcpStream::connect_timeout(&address, wish.timeout).ok();
        let stream = addresses.into_iter().find_map(connect).ok_or(NO_CONNECTION)?;
        // Without these it takes longer, and no more.
        let _ = stream.set_nodelay(true);
        let _ = stream.set_read_timeout(Some(wish.timeout));
        let _ = stream.set_write_timeout(Some(wish.timeout));
        let stream: Box<dyn Stream> = match config.tls.cluster {
            // Hands are shaken when the first call is sent.
            true => Box::new(client::begin(&config.tls, stream).map_err(|_| NO_CONNECTION)?),
            false => Box::new(stream),
        };
        let mut target = Target { stream, received: Vec::new() };
        if !wish.auth.is_empty() {
            let words: Vec<&[u8]> =
                std::iter::once(&b"AUTH"[..]).chain(wish.auth.iter().map(Vec::as_slice)).collect();
            target.say(&encode_request(&words))?;
            target.expect_ok()?;
        }
        if wish.db != 0 {
            target.say(&encode_request(&["SELECT", &wish.db.to_string()]))?;
            target.expect_ok()?;
        }
        Ok(target)
    }

    /// Sends values; says of each whether it was taken, and the first reason why one was not.
    fn restore(
        &mut self,
        found: &[(Vec<u8>, Dumped)],
        is_node: bool,
        replaces: bool,
        now_ms: u64,
    ) -> Result<(Vec<bool>, Option<String>), Error> {
        let command: &[u8] = if is_node { b"RESTORE-ASKING" } else { b"RESTORE" };
        let mut calls = Vec::new();
        for (key, dumped) in found {
            let ttl_ms = dumped.expiry_ms.map_or(0, |at| at.saturating_sub(now_ms).max(1));
            let ttl = ttl_ms.to_string();
            let mut words = vec![command, key, ttl.as_bytes(), &dumped.bytes];
            if replaces {
                words.push(b"REPLACE");
            }
            calls.extend(encode_request(&words));
        }
        self.say(&calls)?;
        let (mut moved, mut refusal) = (Vec::new(), None);
        for _ in found {
            let answer = self.line()?;
            moved.push(!answer.starts_with('-'));
            if let Some(text) = answer.strip_prefix('-') {
                refusal.get_or_insert(text.to_owned());
            }
        }
        Ok((moved, refusal))
    }

    fn say(&mut self, bytes: &[u8]) -> Result<(), Error> {
        let failed = Error::fixed("IOERR error or timeout writing to target instance");
        self.stream.write_all(bytes).and_then(|()| self.stream.flush()).map_err(|_| failed)
    }

    fn expect_ok(&mut self) -> Result<(), Error> {
        let answer = self.line()?;
        match answer.strip_prefix('-') {
            Some(text) => {
                Err(Error::new(format!("ERR Target instance replied with error: {text}")))
            }
            None => Ok(()),
        }
    }

    /// The next line, without its end.
    fn line(&mut self) -> Result<String, Error> {
        loop {
            if let Some(len) = self.received.iter().position(|byte| *byte == b'\n') {
                let line: Vec<u8> = self.received.drain(..=len).collect();
                let line = String::from_utf8_lossy(&line);
                return Ok(line.trim_end().to_owned());
            }
            let mut bytes = [0; 4096];
            let read = loop {
                match self.stream.read(&mut bytes) {
                    Err(error) if error.kind() == ErrorKind::Interrupted => {}
                    result => break result,
                }
            };
            match read {
                Ok(count) if count > 0 && self.received.len() < ANSWER_MAX => {
                    self.received.extend_from_slice(&bytes[..count]);
                }
                _ => return Err(NO_ANSWER),
            }
        }
    }
}
