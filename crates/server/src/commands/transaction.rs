//! MULTI, EXEC, DISCARD, WATCH, UNWATCH.
//!
//! EXEC runs as a session: the slots of all keys that the queued calls name, and of those that the
//! client watches, are locked first; if a call may touch others the gate is closed instead.

use kvasir_keyspace::commands::options::db_index;
use kvasir_keyspace::error::Error;
use kvasir_keyspace::plan::KeyAt;
use kvasir_keyspace::spec::{Argument, Flags, Group, KeyFlags, KeySpec, Spec, Traits};
use kvasir_resp::reply::Mark;

use crate::calls::admit::Moment;
use crate::calls::evict::OUT_OF_MEMORY;
use crate::calls::planning::plan_slots;
use crate::calls::redirect;
use crate::calls::routing::Wish;
use crate::clients::Client;
use crate::commands::ANY_TIME_NOSCRIPT;
use crate::run::moving;
use crate::run::server::{ServerCommand, ServerCx, ServerRun, session_of};
use crate::run::session::Session;
use crate::scripts::writes::says_that_it_writes;
use crate::state::connection::Asks;
use crate::state::connection::transaction::{Queued, Transaction, Watched};

pub static COMMANDS: &[&ServerCommand] = &[&MULTI, &EXEC, &DISCARD, &WATCH, &UNWATCH];

const FLAGS: Flags = ANY_TIME_NOSCRIPT.union(Flags::ALLOW_BUSY);

static MULTI: ServerCommand = ServerCommand {
    spec: Spec {
        name: "multi",
        summary: "Begins a transaction: the calls that follow are queued.",
        since: "1.2.0",
        group: Group::Transactions,
        arity: 1,
        flags: FLAGS.union(Flags::FAST).union(Flags::NO_MULTI),
        ..Spec::BLANK
    },
    run: ServerRun::Plain(multi),
};

fn multi(cx: &mut ServerCx<'_>) -> Result<(), Error> {
    cx.connection.begin_transaction();
    cx.reply().ok();
    Ok(())
}

static DISCARD: ServerCommand = ServerCommand {
    spec: Spec {
        name: "discard",
        summary: "Ends a transaction without running what was queued.",
        since: "2.0.0",
        group: Group::Transactions,
        complexity: "O(N) where N is the number of queued calls.",
        arity: 1,
        flags: FLAGS.union(Flags::FAST),
        traits: Traits::NOT_QUEUED,
        ..Spec::BLANK
    },
    run: ServerRun::Plain(discard),
};

fn discard(cx: &mut ServerCx<'_>) -> Result<(), Error> {
    if cx.connection.take_transaction().is_none() {
        return Err(Error::fixed("ERR DISCARD without MULTI"));
    }
    cx.connection.unwatch(&cx.shared.keyspace);
    cx.reply().ok();
    Ok(())
}

static WATCH: ServerCommand = ServerCommand {
    spec: Spec {
        name: "watch",
        summary: "Has the next transaction fail if one of these keys changes before it runs.",
        since: "2.2.0",
        group: Group::Transactions,
        complexity: "O(1) for every key.",
        arity: -2,
        flags: FLAGS.union(Flags::FAST).union(Flags::NO_MULTI),
        keys: &[KeySpec::range(KeyFlags::RO, 1, -1, 1)],
        arguments: &[Argument::key("key", 0).multiple()],
        ..Spec::BLANK
    },
    run: ServerRun::Plain(watch),
};

fn watch(cx: &mut ServerCx<'_>) -> Result<(), Error> {
    let keyspace = &cx.shared.keyspace;
    let pass = cx
        .inside
        .pass()
        .filter(|_| !keyspace.busy.is_busy())
        .ok_or_else(|| keyspace.busy.error())?;
    for key in cx.args.from(1) {
        cx.connection.watch(keyspace, pass, &cx.core.env, key)?;
    }
    if let Some(node) = &cx.shared.cluster {
        // What goes from here on has changed, and what has gone before is another node's.
        moving::check_again(cx.shared, node, cx.connection, pass, &cx.core.env, cx.args)?;
    }
    cx.reply().ok();
    Ok(())
}

static UNWATCH: ServerCommand = ServerCommand {
    spec: Spec {
        name: "unwatch",
        summary: "Forgets all keys that the client watches.",
        since: "2.2.0",
        group: Group::Transactions,
        arity: 1,
        flags: FLAGS.union(Flags::FAST),
        ..Spec::BLANK
    },
    run: ServerRun::Plain(|cx| {
        cx.connection.unwatch(&cx.shared.keyspace);
        cx.reply().ok();
        Ok(())
    }),
};

static EXEC: ServerCommand = ServerCommand {
    spec: Spec {
        name: "exec",
        summary: "Runs the calls of a transaction, which nobody sees a part of.",
        since: "1.2.0",
        group: Group::Transactions,
        complexity: "That of the queued calls.",
        arity: 1,
        flags: ANY_TIME_NOSCRIPT.union(Flags::SKIP_SLOWLOG),
        traits: Traits::NOT_QUEUED.union(Traits::RUNS_QUEUED),
        ..Spec::BLANK
    },
    run: ServerRun::Session(exec),
};

fn exec(mut session: Session) -> (Session, Result<(), Error>) {
    let connection = &mut session.connection;
    let Some(transaction) = connection.take_transaction() else {
        return (session, Err(Error::fixed("ERR EXEC without MULTI")));
    };
    if transaction.is_aborted {
        connection.unwatch(&session.worker.shared.keyspace);
        let text = "EXECABORT Transaction discarded because of previous errors.";
        return (session, Err(Error::fixed(text)));
    }
    let entries = transaction.calls.iter().map(|call| call.entry);
    if let Err(elsewhere) = redirect::check(session.shared(), &session.connection, entries) {
        session.connection.unwatch(&session.worker.shared.keyspace);
        return (session, Err(elsewhere));
    }
    if let Err(reason) = check(&mut session, &transaction) {
        session.connection.unwatch(&session.worker.shared.keyspace);
        // Who belongs elsewhere need not know what is the matter here.
        if let Err(elsewhere) = check_routes(&session, &transaction) {
            return (session, Err(elsewhere));
        }
        let text = [b"EXECABORT Transaction discarded because of: ", reason.text()].concat();
        return (session, Err(Error::from_bytes(text)));
    }
    let held = hold(&mut session, &transaction);
    if let Err(error) = held.and_then(|()| check_routes(&session, &transaction)) {
        session.connection.unwatch(&session.worker.shared.keyspace);
        return (session, Err(error));
    }
    let is_stale = has_changed(&session);
    let shared = session.shared();
    session.connection.unwatch(&shared.keyspace);
    if is_stale {
        session.connection.reply.null_array();
        return (session, Ok(()));
    }
    let mark = session.connection.reply.mark();
    session.connection.reply.array(transaction.calls.len());
    for call in transaction.calls {
        session = run(session, call, mark);
    }
    (session, Ok(()))
}

/// What keeps all of it from being run, though each call could be queued.
fn check(session: &mut Session, transaction: &Transaction) -> Result<(), Error> {
    let has = |flag| transaction.calls.iter().any(|call| call.entry.spec.flags.contains(flag));
    if !session.may_write() && has(Flags::DENYOOM) {
        return Err(OUT_OF_MEMORY);
    }
    let shared = session.shared();
    let writes = |Queued { entry, args }: &Queued| {
        says_that_it_writes(&shared.scripts, &shared.libraries, entry, args.as_args())
    };
    if transaction.calls.iter().any(writes) {
        session.check_write()?;
    }
    if !transaction.calls.iter().all(|call| call.entry.spec.flags.contains(Flags::STALE)) {
        session.check_stale()?;
    }
    Ok(())
}

/// Locks what the calls name and the client watches, or everything.
fn hold(session: &mut Session, transaction: &Transaction) -> Result<(), Error> {
    let keyspace = &session.shared().keyspace;
    let mut keys: Vec<KeyAt> = Vec::new();
    let mut db = session.connection.db;
    for Queued { entry, args } in &transaction.calls {
        let args = args.as_args();
        if !plan_slots(keyspace, entry, args, db, &mut keys) {
            return session.hold_world();
        }
        if entry.spec.traits.contains(Traits::SELECTS)
            && let Ok(selected) = db_index(keyspace, &args[1])
        {
            db = selected;
        }
    }
    keys.extend(session.connection.multi.watched.iter().flat_map(|watched| watched.places()));
    session.hold_keys(&keys)
}

/// Fails if this is a node of a cluster, and keys of the calls are not here.
fn check_routes(session: &Session, transaction: &Transaction) -> Result<(), Error> {
    if session.shared().cluster.is_none() {
        return Ok(());
    }
    let wish_of = |call: &Queued| {
        Wish::of(session.shared(), &session.connection, call.entry, call.args.as_args())
    };
    let mut wishes = transaction.calls.iter().map(wish_of);
    let Some(first) = wishes.next() else { return Ok(()) };
    // EXEC was sent here by an -ASK or was not, whatever its calls take for granted.
    let asks = session.connection.routing.asks != Asks::No;
    let first = Wish { asks, ..first };
    let wish = wishes.fold(first, |wish, next| Wish { writes: wish.writes || next.writes, ..wish });
    let calls = transaction.calls.iter().map(|call| (call.entry, call.args.as_args()));
    session.check_routes(wish, calls)
}

/// Whether a watched key is not what it was.
fn has_changed(session: &Session) -> bool {
    let watched: Option<&Watched> = session.connection.multi.watched.as_deref();
    watched.is_some_and(|watched| {
        let watching = &session.shared().keyspace.watching;
        watched.is_touched()
            || watched.has_expired(watching, |db, key| session.has_expired(db, key))
    })
}

/// Runs one call of a transaction; its error is its reply, and the others run all the same. The
/// reply to EXEC begins at `start`: how long that is by now is what the log of large replies tells
/// of each call, as in Valkey.
fn run(mut session: Session, call: Queued, start: Mark) -> Session {
    let Queued { entry, args } = call;
    let mark = session.connection.reply.mark();
    if let Err(error) = session.admit(entry, args.as_args(), Moment::Exec) {
        session.fail(entry, mark, &error);
        return session;
    }
    if let Some(run) = session_of(session.worker.commands, entry, args.as_args()) {
        let (mut session, result) = session.hand_on(entry, run, args, start);
        if let Err(error) = result {
            session.fail(entry, mark, &error);
        }
        return session;
    }
    let result = session.call(entry, args.as_args());
    Client::add(&session.connection.client.commands, 1);
    session.feed_monitors(entry, args.as_args(), false);
    if let Err(error) = result {
        session.fail(entry, mark, &error);
    }
    session.note_large(entry, args.as_args(), 0, start);
    session
}
