//! SLOWLOG, and COMMANDLOG, which has two more logs beside it. `crate::command_log` keeps them.

use kvasir_keyspace::error::Error;
use kvasir_keyspace::spec::{Argument, Flags, Group, Spec};
use kvasir_resp::number::parse_integer;

use crate::clients::command_log::{Entry, Kind};
use crate::commands::{ANY_TIME, help_spec, unknown_word, write_help};
use crate::run::server::{ServerCommand, ServerCx, ServerRun};

pub static COMMANDS: &[&ServerCommand] = &[&SLOWLOG, &COMMANDLOG];

/// What SLOWLOG GET shows without a count.
const COUNT: usize = 10;

const SLOWLOG_SINCE: &str = "2.2.12";
const COMMANDLOG_SINCE: &str = "8.1.0";
const LOOKING: Flags = ANY_TIME.union(Flags::ADMIN);
const ALL_NODES: &str = "request_policy:all_nodes";

const TYPE: Argument = Argument::one_of(
    "type",
    &[
        Argument::word("slow", "SLOW"),
        Argument::word("large-request", "LARGE-REQUEST"),
        Argument::word("large-reply", "LARGE-REPLY"),
    ],
);

/// Most of both families' rows.
const OF_SLOWLOG: Spec =
    Spec { since: SLOWLOG_SINCE, group: Group::Server, arity: 2, flags: LOOKING, ..Spec::BLANK };
const OF_COMMANDLOG: Spec = Spec { since: COMMANDLOG_SINCE, ..OF_SLOWLOG };

static SLOWLOG: ServerCommand = ServerCommand {
    spec: Spec {
        name: "slowlog",
        summary: "Commands about the log of slow calls.",
        complexity: "Depends on subcommand.",
        arity: -2,
        flags: Flags::empty(),
        ..OF_SLOWLOG
    },
    run: ServerRun::Container(&[&SLOWLOG_GET, &SLOWLOG_HELP, &SLOWLOG_LEN, &SLOWLOG_RESET]),
};

static SLOWLOG_GET: ServerCommand = ServerCommand {
    spec: Spec {
        name: "get",
        summary: "Shows the newest slow calls.",
        complexity: "O(N) in the number of entries shown",
        arity: -2,
        tips: &[ALL_NODES, "nondeterministic_output"],
        history: &[("4.0.0", "Tells address and name of the client too.")],
        arguments: &[Argument::integer("count").optional()],
        ..OF_SLOWLOG
    },
    run: ServerRun::Plain(|cx| {
        let count = match cx.args.len() {
            2 => COUNT,
            3 => parse_count(&cx.args[2])?,
            _ => return Err(unknown_word("SLOWLOG", &cx.args[1])),
        };
        show(cx, Kind::Slow, count);
        Ok(())
    }),
};

static SLOWLOG_LEN: ServerCommand = ServerCommand {
    spec: Spec {
        name: "len",
        summary: "Counts the entries of the log of slow calls.",
        tips: &[ALL_NODES, "response_policy:agg_sum", "nondeterministic_output"],
        ..OF_SLOWLOG
    },
    run: ServerRun::Plain(|cx| {
        count(cx, Kind::Slow);
        Ok(())
    }),
};

static SLOWLOG_RESET: ServerCommand = ServerCommand {
    spec: Spec {
        name: "reset",
        summary: "Empties the log of slow calls.",
        complexity: "O(N) in the number of entries",
        tips: &[ALL_NODES, "response_policy:all_succeeded"],
        ..OF_SLOWLOG
    },
    run: ServerRun::Plain(|cx| {
        reset(cx, Kind::Slow);
        Ok(())
    }),
};

static SLOWLOG_HELP: ServerCommand = ServerCommand {
    spec: help_spec("6.2.0", Group::Server),
    run: ServerRun::Plain(|cx| {
        write_help(&mut cx.connection.reply, "SLOWLOG", SLOWLOG_LINES);
        Ok(())
    }),
};

static SLOWLOG_LINES: &[&str] = &[
    "GET [<count>]",
    "    The newest slow calls, 10 if no count is given, all for -1. Of each its number, the time",
    "    in seconds since 1970, the microseconds it took, its arguments, and the address and the",
    "    name of its client.",
    "LEN",
    "    How many there are.",
    "RESET",
    "    Forgets them.",
];

static COMMANDLOG: ServerCommand = ServerCommand {
    spec: Spec {
        name: "commandlog",
        summary: "Commands about the logs of slow calls, large calls and large replies.",
        complexity: "Depends on subcommand.",
        arity: -2,
        flags: Flags::empty(),
        ..OF_COMMANDLOG
    },
    run: ServerRun::Container(&[
        &COMMANDLOG_GET,
        &COMMANDLOG_HELP,
        &COMMANDLOG_LEN,
        &COMMANDLOG_RESET,
    ]),
};

static COMMANDLOG_GET: ServerCommand = ServerCommand {
    spec: Spec {
        name: "get",
        summary: "Shows the newest entries of a log.",
        complexity: "O(N) in the number of entries shown",
        arity: 4,
        tips: &[ALL_NODES, "nondeterministic_output"],
        arguments: &[Argument::integer("count"), TYPE],
        ..OF_COMMANDLOG
    },
    run: ServerRun::Plain(|cx| {
        let count = parse_count(&cx.args[2])?;
        let kind = Kind::parse(&cx.args[3])?;
        show(cx, kind, count);
        Ok(())
    }),
};

static COMMANDLOG_LEN: ServerCommand = ServerCommand {
    spec: Spec {
        name: "len",
        summary: "Counts the entries of a log.",
        arity: 3,
        tips: &[ALL_NODES, "response_policy:agg_sum", "nondeterministic_output"],
        arguments: &[TYPE],
        ..OF_COMMANDLOG
    },
    run: ServerRun::Plain(|cx| {
        let kind = Kind::parse(&cx.args[2])?;
        count(cx, kind);
        Ok(())
    }),
};

static COMMANDLOG_RESET: ServerCommand = ServerCommand {
    spec: Spec {
        name: "reset",
        summary: "Empties a log.",
        complexity: "O(N) in the number of entries",
        arity: 3,
        tips: &[ALL_NODES, "response_policy:all_succeeded"],
        arguments: &[TYPE],
        ..OF_COMMANDLOG
    },
    run: ServerRun::Plain(|cx| {
        let kind = Kind::parse(&cx.args[2])?;
        reset(cx, kind);
        Ok(())
    }),
};

static COMMANDLOG_HELP: ServerCommand = ServerCommand {
    spec: help_spec(COMMANDLOG_SINCE, Group::Server),
    run: ServerRun::Plain(|cx| {
        write_help(&mut cx.connection.reply, "COMMANDLOG", COMMANDLOG_LINES);
        Ok(())
    }),
};

static COMMANDLOG_LINES: &[&str] = &[
    "GET <count> <type>",
    "    The newest entries of a log, all for -1. Of each its number, the time in seconds since",
    "    1970, the microseconds that the call took or the bytes of the request or of the reply,",
    "    its arguments, and the address and the name of its client.",
    "LEN <type>",
    "    How many there are.",
    "RESET <type>",
    "    Forgets them.",
    "Types are slow, large-request and large-reply.",
];

/// -1 is all.
fn parse_count(word: &[u8]) -> Result<usize, Error> {
    match parse_integer(word) {
        Some(-1) => Ok(usize::MAX),
        count => count
            .and_then(|count| usize::try_from(count).ok())
            .ok_or(Error::fixed("ERR count should be greater than or equal to -1")),
    }
}

fn show(cx: &mut ServerCx<'_>, kind: Kind, count: usize) {
    let entries = cx.shared.command_logs.newest(kind, count);
    let reply = cx.reply();
    reply.array(entries.len());
    for Entry { id, time_s, value, args, address, name } in entries {
        reply.array(6);
        [id, time_s, value].into_iter().for_each(|number| reply.integer(number as i64));
        reply.array(args.len());
        args.iter().for_each(|arg| reply.bulk(arg));
        reply.bulk(address.as_bytes());
        reply.bulk(name.as_bytes());
    }
}

fn count(cx: &mut ServerCx<'_>, kind: Kind) {
    let len = cx.shared.command_logs.len(kind);
    cx.reply().integer(len as i64);
}

fn reset(cx: &mut ServerCx<'_>, kind: Kind) {
    cx.shared.command_logs.reset(kind);
    cx.reply().ok();
}
