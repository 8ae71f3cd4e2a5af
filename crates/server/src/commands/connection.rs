//! PING, ECHO, SELECT, QUIT, RESET.

use kvasir_keyspace::error::Error;
use kvasir_keyspace::spec::{Flags, Group, Spec};
use kvasir_resp::number::parse_integer;
use std::sync::atomic::Ordering::Relaxed;

use super::{ServerCommand, ServerCx, ServerRun};

pub static COMMANDS: &[&ServerCommand] = &[&PING, &ECHO, &SELECT, &QUIT];

static PING: ServerCommand = ServerCommand {
    spec: Spec {
        name: "ping",
        group: Group::Connection,
        arity: -1,
        flags: Flags::FAST,
        ..Spec::BLANK
    },
    run: ServerRun::Plain(ping),
};

fn ping(cx: &mut ServerCx<'_>) -> Result<(), Error> {
    match cx.args.len() {
        1 => cx.connection.reply.simple("PONG"),
        2 => cx.connection.reply.bulk(&cx.args[1]),
        _ => return Err(Error::wrong_arity("ping")),
    }
    Ok(())
}

static ECHO: ServerCommand = ServerCommand {
    spec: Spec {
        name: "echo",
        group: Group::Connection,
        arity: 2,
        flags: Flags::FAST,
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
        group: Group::Connection,
        arity: 2,
        flags: Flags::LOADING.union(Flags::STALE).union(Flags::FAST),
        ..Spec::BLANK
    },
    run: ServerRun::Plain(select),
};

fn select(cx: &mut ServerCx<'_>) -> Result<(), Error> {
    let index = parse_integer(&cx.args[1]).ok_or(Error::fixed("ERR invalid DB index"))?;
    let db = cx.shared.keyspace.db_index(index).ok_or(Error::DB_OUT_OF_RANGE)?;
    cx.connection.db = db;
    cx.connection.client.db.store(db.0, Relaxed);
    cx.connection.reply.ok();
    Ok(())
}

static QUIT: ServerCommand = ServerCommand {
    spec: Spec {
        name: "quit",
        group: Group::Connection,
        arity: -1,
        flags: Flags::ALLOW_BUSY
            .union(Flags::NOSCRIPT)
            .union(Flags::LOADING)
            .union(Flags::STALE)
            .union(Flags::FAST)
            .union(Flags::NO_AUTH),
        ..Spec::BLANK
    },
    run: ServerRun::Plain(|cx| {
        cx.connection.reply.ok();
        cx.connection.is_closing = true;
        Ok(())
    }),
};
