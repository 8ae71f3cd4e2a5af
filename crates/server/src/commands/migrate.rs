//! MIGRATE: moves keys to another server.
//!
//! Keys are not held while the other server is spoken to, since that may take long. What was sent
//! is deleted only if it is still what is here; else it is sent again. In a slot that moves nobody
//! else may write to what is on its way (`in_flight`).

use std::time::Duration;

use kvasir_keyspace::commands::options::integer;
use kvasir_keyspace::error::Error;
use kvasir_keyspace::place::DbIndex;
use kvasir_keyspace::plan::KeyAt;
use kvasir_keyspace::spec::{
    Argument, Begin, Categories, Find, Flags, KeyFlags, KeySpec, Spec, Traits,
};
use kvasir_reactor::clock;
use kvasir_resp::args::{Args, ArgsBuf};
use kvasir_resp::encode::encode_request;

use crate::calls::routing::TRY_AGAIN;
use crate::net::targets::{Lost, Place, Target};
use crate::run::held_keys::Dumped;
use crate::run::server::{ServerCommand, ServerRun};
use crate::run::session::Session;
use crate::state::shared::Shared;

pub static COMMANDS: &[&ServerCommand] = &[&MIGRATE];

/// A key that changes each time that it is sent is held in the end.
const ROUNDS_MAX: usize = 8;
/// What a timeout that is none means.
const TIMEOUT_DEFAULT_MS: i64 = 1000;

const MOVED: KeyFlags = KeyFlags::RW.union(KeyFlags::ACCESS).union(KeyFlags::DELETE);

static MIGRATE: ServerCommand = ServerCommand {
    spec: Spec {
        name: "migrate",
        summary: "Moves keys to another server.",
        since: "2.6.0",
        complexity: "That of DUMP and DEL here, and of RESTORE there; O(N) in the bytes sent.",
        arity: -6,
        flags: Flags::WRITE,
        traits: Traits::SENDS_KEYS,
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
const NO_WAY: Error = Error::fixed("IOERR error or timeout writing to target instance");
const NO_ANSWER: Error = Error::fixed("IOERR error or timeout reading to target instance");

/// What a call asks for.
struct Wish {
    /// Not over TLS.
    place: Place,
    db: i64,
    timeout: Duration,
    copies: bool,
    replaces: bool,
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
            place: Place {
                host: String::from_utf8_lossy(&args[1]).into_owned(),
                port: std::str::from_utf8(&args[2])
                    .ok()
                    .and_then(|port| port.parse().ok())
                    .unwrap_or(0),
                auth,
                tls: None,
            },
            db,
            timeout: Duration::from_millis(timeout_ms.unsigned_abs()),
            copies,
            replaces,
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
        let calls = restores(&found, node.is_some(), replaces);
        let answers = exchange(session.shared(), &wish, &mut target, &calls, found.len())?;
        let moved = answers.iter().map(|answer| !answer.starts_with('-'));
        let moved: Vec<bool> = moved.collect();
        let refused = answers.iter().find_map(|answer| answer.strip_prefix('-'));
        refusal = refusal.or(refused.map(str::to_owned));
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
    if let Some(target) = target {
        session.shared().targets.keep(target, clock::now_unix_ms());
    }
    match refusal {
        Some(text) => Err(Error::new(format!("ERR Target instance replied with error: {text}"))),
        None => {
            session.connection.reply.ok();
            Ok(())
        }
    }
}

/// The calls that restore these values.
fn restores(found: &[(Vec<u8>, Dumped)], is_node: bool, replaces: bool) -> Vec<u8> {
    let command: &[u8] = if is_node { b"RESTORE-ASKING" } else { b"RESTORE" };
    let now_ms = clock::now_unix_ms();
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
    calls
}

/// Has the other server make these calls, and returns its answers.
fn exchange(
    shared: &Shared,
    wish: &Wish,
    target: &mut Option<Target>,
    calls: &[u8],
    count: usize,
) -> Result<Vec<String>, Error> {
    let config = shared.config();
    let tls = &config.tls;
    let place = Place { tls: tls.cluster.then(|| tls.clone()), ..wish.place.clone() };
    if target.is_none() {
        *target = shared.targets.take(&place, wish.timeout);
    }
    loop {
        let open = match target.take() {
            Some(target) => target,
            None => Target::connect(place.clone(), wish.timeout).ok_or(NO_CONNECTION)?,
        };
        let open = target.insert(open);
        match ask(shared, wish, open, calls, count)? {
            Ok(answers) => return Ok(answers),
            // At most once: the next one is new.
            Err(Lost::Stale) => *target = None,
            Err(Lost::Writing) => return Err(NO_WAY),
            Err(Lost::Reading) => return Err(NO_ANSWER),
        }
    }
}

fn ask(
    shared: &Shared,
    wish: &Wish,
    target: &mut Target,
    calls: &[u8],
    count: usize,
) -> Result<Result<Vec<String>, Lost>, Error> {
    match target.log_in() {
        Ok(answer) => answer.map_or(Ok(()), |answer| expect_ok(&answer))?,
        Err(lost) => return Ok(Err(lost)),
    }
    if target.db != wish.db {
        let select = encode_request(&["SELECT", &wish.db.to_string()]);
        match target.say(&select).and_then(|()| target.line()) {
            Ok(answer) => expect_ok(&answer)?,
            Err(lost) => return Ok(Err(lost)),
        }
        target.db = wish.db;
    }
    if let Err(lost) = target.say(calls) {
        return Ok(Err(lost));
    }
    if let Some(node) = &shared.cluster {
        // Keys are deleted here because the slot moves: the disk has to know that it does.
        node.save_late();
    }
    Ok((0..count).map(|_| target.line()).collect())
}

fn expect_ok(answer: &str) -> Result<(), Error> {
    match answer.strip_prefix('-') {
        Some(text) => Err(Error::new(format!("ERR Target instance replied with error: {text}"))),
        None => Ok(()),
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
