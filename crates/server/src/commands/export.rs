//! EXPORT: keys of one moment as columns, in Arrow's stream format.

use std::collections::HashSet;
use std::sync::Arc;

use kvasir_acl::call::Call;
use kvasir_analytics::column::DataType;
use kvasir_analytics::export::Order;
use kvasir_analytics::selection::Selection;
use kvasir_analytics::shape::{COLUMNS_MAX, Named, Shape};
use kvasir_keyspace::error::Error;
use kvasir_keyspace::logging::fence_all;
use kvasir_keyspace::spec::{
    Argument, ArgumentKind, Begin, Find, Flags, Group, KeyFlags, KeySpec, Spec,
};
use kvasir_keyspace::value::Kind;
use kvasir_resp::args::{Args, ArgsBuf};
use kvasir_resp::number::parse_integer;
use kvasir_structures::crc16;

use crate::analytics::exports::{STREAMS_MAX, Wanted, write};
use crate::analytics::grant::Grant;
use crate::analytics::ticket::Ticket;
use crate::calls::routing::served;
use crate::commands::{help_spec, is_word, write_help};
use crate::run::analytics::{caller, wait};
use crate::run::server::{ServerCommand, ServerCx, ServerRun};

pub static COMMANDS: &[&ServerCommand] = &[&EXPORT];

/// NEXT answers with no bytes at all by then: clients give up calls that take longer than seconds.
const WAIT_MS: u64 = 1000;

pub(super) const SINCE: &str = "7.2.4";
const FLAGS: Flags = Flags::NOSCRIPT.union(Flags::NO_MULTI);

static EXPORT: ServerCommand = ServerCommand {
    spec: Spec {
        name: "export",
        summary: "Commands that give keys of one moment as columns.",
        since: SINCE,
        group: Group::Analytics,
        complexity: "Depends on subcommand.",
        arity: -2,
        ..Spec::BLANK
    },
    run: ServerRun::Container(&[&BEGIN, &END, &HELP, &NEXT]),
};

static BEGIN: ServerCommand = ServerCommand {
    spec: Spec {
        name: "begin",
        summary: "Begins streams of the keys of this moment, and returns their ids.",
        since: SINCE,
        group: Group::Analytics,
        complexity: "O(1), with the gate closed; the background visits all keys of the slots.",
        arity: -2,
        flags: FLAGS.union(Flags::READONLY),
        tips: &["nondeterministic_output"],
        keys: &[KeySpec {
            flags: KeyFlags::RO.union(KeyFlags::ACCESS),
            notes: None,
            begin: Begin::Keyword { word: "KEYS", from: 2 },
            find: Find::Count { count: 0, first: 1, step: 1 },
        }],
        arguments: &[
            Argument::new("pattern", ArgumentKind::Pattern).token("MATCH").optional(),
            Argument::block(
                "keys",
                &[Argument::integer("numkeys").token("KEYS"), Argument::key("key", 0).multiple()],
            )
            .optional(),
            Argument::block(
                "slots",
                &[Argument::integer("first").token("SLOTS"), Argument::integer("last")],
            )
            .optional(),
            Argument::string("type").token("TYPE").optional(),
            Argument::integer("streams").token("STREAMS").optional(),
            Argument::one_of(
                "on-misfit",
                &[Argument::word("fail", "FAIL"), Argument::word("null", "NULL")],
            )
            .token("ONMISFIT")
            .optional(),
            Argument::block(
                "columns",
                &[
                    Argument::string("column"),
                    Argument::string("column-type").token("AS").optional(),
                ],
            )
            .token("COLUMNS")
            .multiple()
            .optional(),
        ],
        ..Spec::BLANK
    },
    run: ServerRun::World(begin),
};

static NEXT: ServerCommand = ServerCommand {
    spec: Spec {
        name: "next",
        summary: "Returns the next bytes of a stream, none if they take a second, at its end null.",
        since: SINCE,
        group: Group::Analytics,
        arity: 3,
        flags: FLAGS.union(Flags::BLOCKING),
        arguments: &[Argument::integer("id")],
        tips: &["nondeterministic_output"],
        ..Spec::BLANK
    },
    run: ServerRun::Plain(next),
};

static END: ServerCommand = ServerCommand {
    spec: Spec {
        name: "end",
        summary: "Ends a stream before its end.",
        since: SINCE,
        group: Group::Analytics,
        arity: 3,
        flags: FLAGS,
        arguments: &[Argument::integer("id")],
        ..Spec::BLANK
    },
    run: ServerRun::Plain(|cx| {
        let (id, user) = (id(cx)?, cx.connection.access.user().id);
        cx.shared.analytics.end_export(id, user)?;
        cx.reply().ok();
        Ok(())
    }),
};

static HELP: ServerCommand = ServerCommand {
    spec: help_spec(SINCE, Group::Analytics),
    run: ServerRun::Plain(|cx| {
        let lines = [
            "BEGIN [MATCH <pattern>] [KEYS <count> <key> ...] [SLOTS <first> <last>]",
            "      [TYPE <type>] [STREAMS <count>] [ONMISFIT FAIL|NULL]",
            "      [COLUMNS <column> [AS <type>] ...]",
            "    Begins an export of the keys of this moment; returns the ids of its streams.",
            "NEXT <id>",
            "    Returns the next bytes of a stream, or null at its end.",
            "END <id>",
            "    Ends a stream.",
        ];
        write_help(cx.reply(), "EXPORT", &lines);
        Ok(())
    }),
};

fn begin(cx: &mut ServerCx<'_>) -> Result<(), Error> {
    let Wish { shape, mut selection, streams } = parse(cx)?;
    let grant = grant(cx, "export|begin")?;
    selection.may_read = grant.may_read();
    selection.served = served(cx.shared);
    let (shared, db, env) = (cx.shared, cx.connection.db, cx.core.env.clone());
    let (client, order) = (cx.connection.client.id, Order { shape, selection, env });
    let wanted = Wanted { db, order, streams, client, grant };
    let ids = shared.analytics.begin_export(&shared.store, cx.alone(), wanted)?;
    // What the streams show must be on disk before anybody has their ids.
    fence_all(&shared.keyspace, &cx.core.env, &mut cx.core.tally);
    cx.reply().array(ids.len());
    ids.iter().for_each(|id| cx.reply().integer(*id as i64));
    Ok(())
}

fn next(cx: &mut ServerCx<'_>) -> Result<(), Error> {
    let (id, shared) = (id(cx)?, cx.shared);
    let deadline_ms = cx.core.env.now_ms + WAIT_MS;
    let ticket = Ticket::until(caller(cx), cx.connection.reply.protocol(), deadline_ms);
    let user = cx.connection.access.user().id;
    match shared.analytics.pull(&shared.store, id, user, &ticket)? {
        Some(answer) => write(answer, cx.reply()),
        None => wait(cx, ticket),
    }
    Ok(())
}

fn id(cx: &ServerCx<'_>) -> Result<u64, Error> {
    let id = parse_integer(&cx.args[2]).and_then(|id| u64::try_from(id).ok());
    id.ok_or(Error::NOT_INTEGER)
}

/// What the caller may do by this call, to be asked again when something is told.
pub(super) fn grant(cx: &ServerCx<'_>, command: &str) -> Result<Grant, Error> {
    let (shared, access) = (cx.shared, &cx.connection.access);
    let mut args = ArgsBuf::new();
    for arg in cx.args.iter() {
        args.push(arg).map_err(|_| Error::fixed("ERR the call is too long"))?;
    }
    Ok(Grant {
        acl: &shared.acl,
        entry: shared.table.find_original(command.as_bytes()).expect("it is called"),
        args,
        db: cx.connection.db,
        databases: cx.core.config.databases,
        user: Arc::clone(access.user()),
        is_free: access.is_free(&shared.acl),
    })
}

/// Whose jobs the caller may end, by id: its own, or, who may change the configuration, all.
pub(super) fn cancellable(cx: &ServerCx<'_>) -> Option<u64> {
    let (shared, access) = (cx.shared, &cx.connection.access);
    let entry = shared.table.find_original(b"config|set").expect("there is one");
    let (db, databases) = (cx.connection.db, cx.core.config.databases);
    let call = Call { entry, args: Args::default(), db, databases };
    let may_end_all = access.is_free(&shared.acl) || access.user().check(&call).is_ok();
    (!may_end_all).then_some(access.user().id)
}

/// What a call asks for.
struct Wish {
    shape: Shape,
    selection: Selection,
    streams: usize,
}

fn parse(cx: &ServerCx<'_>) -> Result<Wish, Error> {
    let args = cx.args;
    let (mut selection, mut kind, mut streams) = (Selection::all(), None, 1);
    let (mut nulls_misfits, mut columns_at, mut at) = (false, None, 2);
    while let Some(word) = args.get(at) {
        if is_word(word, "columns") {
            columns_at = Some(at + 1);
            break;
        }
        let value = args.get(at + 1).ok_or(Error::SYNTAX)?;
        at += 2;
        if is_word(word, "match") {
            selection.pattern = (value != b"*").then(|| value.to_vec());
        } else if is_word(word, "keys") {
            let count = usize::try_from(integer(value)?).map_err(|_| Error::SYNTAX)?;
            if count > args.len() - at {
                return Err(Error::SYNTAX);
            }
            let keys = (at..at + count).map(|key| args[key].to_vec());
            selection.keys = Some(keys.collect::<HashSet<_>>());
            at += count;
        } else if is_word(word, "slots") {
            let last = integer(args.get(at).ok_or(Error::SYNTAX)?)?;
            let first = integer(value)?;
            if !(0..=last).contains(&first) || last >= crc16::SLOTS.into() {
                return Err(Error::fixed("ERR Invalid or out of range slot"));
            }
            let slot = |number: i64| u16::try_from(number).map_err(|_| Error::SYNTAX);
            selection.slots = slot(first)?..slot(last + 1)?;
            at += 1;
        } else if is_word(word, "type") {
            let found = Kind::from_name(value);
            kind = Some(found.ok_or_else(|| Error::quoting("ERR unknown type '", value, "'"))?);
        } else if is_word(word, "streams") {
            let count = usize::try_from(integer(value)?).unwrap_or(0);
            if !(1..=STREAMS_MAX).contains(&count) {
                let text = format!("ERR STREAMS is a number from 1 to {STREAMS_MAX}");
                return Err(Error::new(text));
            }
            streams = count;
        } else if is_word(word, "onmisfit") && (is_word(value, "null") || is_word(value, "fail")) {
            nulls_misfits = is_word(value, "null");
        } else {
            return Err(Error::SYNTAX);
        }
    }
    selection.kind = kind;
    let columns = match columns_at {
        Some(first) => parse_columns(cx, first, kind)?,
        None => Named::usual(kind),
    };
    Ok(Wish { shape: Shape { kind, columns, nulls_misfits }, selection, streams })
}

/// Names, each with a type if `AS` follows.
fn parse_columns(cx: &ServerCx<'_>, first: usize, kind: Option<Kind>) -> Result<Vec<Named>, Error> {
    let (mut columns, mut at) = (Vec::new(), first);
    while let Some(name) = cx.args.get(at) {
        at += 1;
        let mut declared = None;
        if cx.args.get(at).is_some_and(|word| is_word(word, "as")) {
            let word = cx.args.get(at + 1).ok_or(Error::SYNTAX)?;
            let unknown = || Error::quoting("ERR unknown column type '", word, "'");
            declared = Some(DataType::from_name(word).ok_or_else(unknown)?);
            at += 2;
        }
        let column = Named::new(name, declared, kind);
        columns.push(column.map_err(|why| Error::new(format!("ERR {why}")))?);
    }
    if columns.is_empty() || columns.len() > COLUMNS_MAX {
        return Err(Error::new(format!("ERR COLUMNS names 1 to {COLUMNS_MAX} columns")));
    }
    Ok(columns)
}

fn integer(text: &[u8]) -> Result<i64, Error> {
    parse_integer(text).ok_or(Error::NOT_INTEGER)
}
