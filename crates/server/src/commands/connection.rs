//! PING, ECHO, SELECT, RESET, QUIT.

use std::sync::atomic::Ordering::Relaxed;

use kvasir_acl::access::Access;
use kvasir_config::replication::Quorum;
use kvasir_keyspace::commands::options::db_index;
use kvasir_keyspace::error::Error;
use kvasir_keyspace::place::DbIndex;
use kvasir_keyspace::spec::{Argument, Flags, Group, Spec, Traits};
use kvasir_resp::reply::Protocol;

use crate::commands::auth::set_protocol;
use crate::commands::{ANY_TIME_FAST, HANDSHAKE};
use crate::run::server::{ServerCommand, ServerCx, ServerRun};
use crate::state::connection::Replies;
use crate::state::connection::messages::is_in_subscribed_mode;

pub static COMMANDS: &[&ServerCommand] = &[&PING, &ECHO, &SELECT, &RESET, &QUIT];

static PING: ServerCommand = ServerCommand {
    spec: Spec {
        name: "ping",
        summary: "Answers PONG, or the given message.",
        group: Group::Connection,
        arity: -1,
        flags: Flags::FAST,
        traits: Traits::WHILE_SUBSCRIBED.union(Traits::TELLS_HEALTH),
        tips: &["request_policy:all_shards", "response_policy:all_succeeded"],
        arguments: &[Argument::string("message").optional()],
        ..Spec::BLANK
    },
    run: ServerRun::Plain(ping),
};

fn ping(cx: &mut ServerCx<'_>) -> Result<(), Error> {
    let message = match cx.args.len() {
        1 => None,
        2 => Some(&cx.args[1]),
        _ => return Err(Error::wrong_arity("ping")),
    };
    let in_subscribed_mode = is_in_subscribed_mode(cx.connection);
    let reply = &mut cx.connection.reply;
    if in_subscribed_mode {
        // In the shape of a message.
        reply.array(2);
        reply.bulk(b"pong");
        reply.bulk(message.unwrap_or_default());
        return Ok(());
    }
    match message {
        None => reply.simple("PONG"),
        Some(message) => reply.bulk(message),
    }
    Ok(())
}

static ECHO: ServerCommand = ServerCommand {
    spec: Spec {
        name: "echo",
        summary: "Answers the given message.",
        group: Group::Connection,
        arity: 2,
        flags: ANY_TIME_FAST,
        arguments: &[Argument::string("message")],
        ..Spec::BLANK
    },
    run: ServerRun::Plain(|cx| {
        cx.connection.reply.bulk(&cx.args[1]);
        Ok(())
    }),
};

static SELECT: ServerCommand = ServerCommand {
    spec: Spec {
        name: "select",
        summary: "Chooses the database that the connection's commands work on.",
        group: Group::Connection,
        arity: 2,
        flags: ANY_TIME_FAST,
        traits: Traits::SELECTS,
        arguments: &[Argument::integer("index")],
        ..Spec::BLANK
    },
    run: ServerRun::Plain(select),
};

fn select(cx: &mut ServerCx<'_>) -> Result<(), Error> {
    let db = db_index(&cx.shared.keyspace, &cx.args[1])?;
    if db != DbIndex(0) && cx.shared.cluster.is_some() {
        return Err(Error::fixed("ERR SELECT is not allowed in cluster mode"));
    }
    set_db(cx, db);
    cx.reply().ok();
    Ok(())
}

fn set_db(cx: &mut ServerCx<'_>, db: DbIndex) {
    cx.connection.db = db;
    cx.connection.client.db.store(db.0, Relaxed);
}

static RESET: ServerCommand = ServerCommand {
    spec: Spec {
        name: "reset",
        summary: "Brings the connection back to the state in which it was opened.",
        since: "6.2.0",
        group: Group::Connection,
        arity: 1,
        flags: HANDSHAKE,
        traits: Traits::NOT_QUEUED.union(Traits::WHILE_SUBSCRIBED),
        ..Spec::BLANK
    },
    run: ServerRun::Plain(reset),
};

fn reset(cx: &mut ServerCx<'_>) -> Result<(), Error> {
    cx.subscriber().unsubscribe_all();
    cx.shared.tracking.stop(&mut cx.connection.listening.tracking);
    cx.connection.set_monitor(&cx.shared.monitors, cx.worker, false);
    cx.connection.stop_tracing(&cx.shared.traces);
    set_protocol(cx, Protocol::Resp2);
    set_db(cx, DbIndex(0));
    cx.connection.access = Access::new(&cx.shared.acl, &cx.shared.table);
    cx.connection.output.replies = Replies::On;
    cx.connection.take_transaction();
    cx.connection.unwatch(&cx.shared.keyspace);
    cx.connection.set_durability(cx.shared, None, Quorum::default());
    let client = &cx.connection.client;
    client.rename(|names| {
        names.name.clear();
        names.user = b"default".to_vec();
    });
    client.no_evict.store(false, Relaxed);
    client.no_touch.store(false, Relaxed);
    cx.reply().simple("RESET");
    Ok(())
}

static QUIT: ServerCommand = ServerCommand {
    spec: Spec {
        name: "quit",
        summary: "Answers OK and closes the connection.",
        group: Group::Connection,
        arity: -1,
        flags: HANDSHAKE,
        traits: Traits::NOT_QUEUED.union(Traits::WHILE_SUBSCRIBED),
        ..Spec::BLANK
    },
    run: ServerRun::Plain(|cx| {
        cx.connection.reply.ok();
        cx.connection.is_closing = true;
        Ok(())
    }),
};
