//! EVAL and its kin, SCRIPT.

use kvasir_keyspace::busy::Kind;
use kvasir_keyspace::error::Error;
use kvasir_keyspace::spec::{Argument, Begin, Find, Flags, Group, KeyFlags, KeySpec, Spec, Traits};
use kvasir_lua::interpreter::Sha;
use kvasir_resp::args::Args;

use crate::commands::{help_spec, is_word, write_help};
use crate::run::scripting::{busy, call, interpreters};
use crate::run::server::{ServerCommand, ServerCx, ServerRun};
use crate::scripts::state::DebugMode;

pub static COMMANDS: &[&ServerCommand] = &[&EVAL, &EVALSHA, &EVAL_RO, &EVALSHA_RO, &SCRIPT];

const RUN_FLAGS: Flags = Flags::NOSCRIPT
    .union(Flags::STALE)
    .union(Flags::SKIP_MONITOR)
    .union(Flags::NO_MANDATORY_KEYS)
    .union(Flags::MOVABLEKEYS);

const READS: KeyFlags = KeyFlags::RO.union(KeyFlags::ACCESS);
const WRITES: KeyFlags = KeyFlags::RW.union(KeyFlags::ACCESS).union(KeyFlags::UPDATE);

/// Keys behind their number, which is argument 2.
pub(super) const fn counted_keys(flags: KeyFlags, notes: Option<&'static str>) -> KeySpec {
    KeySpec {
        flags,
        notes,
        begin: Begin::Index(2),
        find: Find::Count { count: 0, first: 1, step: 1 },
    }
}

pub(super) const WRITING_KEYS: KeySpec = counted_keys(
    WRITES,
    Some("We cannot tell how the keys will be used so we assume the worst, RW and UPDATE"),
);
pub(super) const READING_KEYS: KeySpec = counted_keys(
    READS,
    Some("We cannot tell how the keys will be used so we assume the worst, RO and ACCESS"),
);

const NUMKEYS: Argument = Argument::integer("numkeys");
const KEYS: Argument = Argument::key("key", 0).optional().multiple();
const ARGS: Argument = Argument::string("arg").optional().multiple();

/// The row that all of them share.
pub(super) const RUN: Spec = Spec {
    group: Group::Scripting,
    complexity: "That of the code that runs.",
    arity: -3,
    flags: RUN_FLAGS,
    keys: &[WRITING_KEYS],
    ..Spec::BLANK
};

pub(super) const SCRIPT_ARGUMENTS: &[Argument] = &[Argument::string("script"), NUMKEYS, KEYS, ARGS];
pub(super) const SHA_ARGUMENTS: &[Argument] = &[Argument::string("sha1"), NUMKEYS, KEYS, ARGS];
pub(super) const FUNCTION_ARGUMENTS: &[Argument] =
    &[Argument::string("function"), NUMKEYS, KEYS, ARGS];

pub(super) const RUN_RO: Spec =
    Spec { since: "7.0.0", flags: RUN_FLAGS.union(Flags::READONLY), keys: &[READING_KEYS], ..RUN };

static EVAL: ServerCommand = ServerCommand {
    spec: Spec {
        name: "eval",
        summary: "Runs a Lua script.",
        since: "2.6.0",
        traits: Traits::MAY_REPLICATE,
        arguments: SCRIPT_ARGUMENTS,
        ..RUN
    },
    run: ServerRun::Session(|session| call::eval(session, false)),
};

static EVALSHA: ServerCommand = ServerCommand {
    spec: Spec {
        name: "evalsha",
        summary: "Runs a Lua script that was loaded before, by its SHA1.",
        since: "2.6.0",
        traits: Traits::MAY_REPLICATE,
        keys: &[counted_keys(WRITES, None)],
        arguments: SHA_ARGUMENTS,
        ..RUN
    },
    run: ServerRun::Session(|session| call::eval_sha(session, false)),
};

static EVAL_RO: ServerCommand = ServerCommand {
    spec: Spec {
        name: "eval_ro",
        summary: "Runs a Lua script that does not write.",
        arguments: SCRIPT_ARGUMENTS,
        ..RUN_RO
    },
    run: ServerRun::Session(|session| call::eval(session, true)),
};

static EVALSHA_RO: ServerCommand = ServerCommand {
    spec: Spec {
        name: "evalsha_ro",
        summary: "Runs a Lua script that was loaded before and does not write, by its SHA1.",
        keys: &[counted_keys(READS, None)],
        arguments: SHA_ARGUMENTS,
        ..RUN_RO
    },
    run: ServerRun::Session(|session| call::eval_sha(session, true)),
};

static SCRIPT: ServerCommand = ServerCommand {
    spec: Spec {
        name: "script",
        summary: "Loads, lists, ends and forgets scripts.",
        since: "2.6.0",
        group: Group::Scripting,
        complexity: "That of the subcommand.",
        arity: -2,
        ..Spec::BLANK
    },
    run: ServerRun::Container(&[&LOAD, &EXISTS, &SHOW, &FLUSH, &KILL, &DEBUG, &HELP]),
};

/// The row that SCRIPT's subcommands share.
const SUBCOMMAND: Spec =
    Spec { since: "2.6.0", group: Group::Scripting, flags: Flags::NOSCRIPT, ..Spec::BLANK };

static LOAD: ServerCommand = ServerCommand {
    spec: Spec {
        name: "load",
        summary: "Compiles a script and keeps it; returns its SHA1.",
        complexity: "O(N) where N is the length of the script in bytes.",
        arity: 3,
        flags: Flags::NOSCRIPT.union(Flags::STALE),
        tips: &["request_policy:all_nodes", "response_policy:all_succeeded"],
        arguments: &[Argument::string("script")],
        ..SUBCOMMAND
    },
    run: ServerRun::Session(call::load),
};

static EXISTS: ServerCommand = ServerCommand {
    spec: Spec {
        name: "exists",
        summary: "Tells of each SHA1 whether its script is loaded.",
        complexity: "O(N) where N is the number of scripts.",
        arity: -3,
        tips: &["request_policy:all_shards", "response_policy:agg_logical_and"],
        arguments: &[Argument::string("sha1").multiple()],
        ..SUBCOMMAND
    },
    run: ServerRun::Plain(exists),
};

fn exists(cx: &mut ServerCx<'_>) -> Result<(), Error> {
    let names = cx.args.from(2);
    cx.reply().array(names.len());
    for name in names {
        let sha = <Sha>::try_from(name.to_ascii_lowercase()).ok();
        let is_there = sha.is_some_and(|sha| cx.shared.scripts.find(&sha).is_some());
        cx.reply().integer(i64::from(is_there));
    }
    Ok(())
}

static SHOW: ServerCommand = ServerCommand {
    spec: Spec {
        name: "show",
        summary: "Returns the text of a loaded script.",
        since: "8.0.0",
        arity: 3,
        flags: Flags::NOSCRIPT.union(Flags::STALE),
        arguments: &[Argument::string("sha1")],
        ..SUBCOMMAND
    },
    run: ServerRun::Plain(|cx| {
        let sha = <Sha>::try_from(cx.args[2].to_ascii_lowercase()).ok();
        let script = sha.and_then(|sha| cx.shared.scripts.find(&sha));
        let script = script.ok_or(Error::fixed("NOSCRIPT No matching script."))?;
        cx.reply().bulk(&script.body);
        Ok(())
    }),
};

static FLUSH: ServerCommand = ServerCommand {
    spec: Spec {
        name: "flush",
        summary: "Forgets all scripts.",
        complexity: "O(N) where N is the number of scripts.",
        arity: -2,
        tips: &["request_policy:all_nodes", "response_policy:all_succeeded"],
        history: &[("6.2.0", "Takes `ASYNC` and `SYNC`.")],
        arguments: &[Argument {
            since: Some("6.2.0"),
            ..Argument::one_of(
                "async",
                &[Argument::word("async", "ASYNC"), Argument::word("sync", "SYNC")],
            )
            .optional()
        }],
        ..SUBCOMMAND
    },
    run: ServerRun::Plain(|cx| {
        check_flush_mode(cx.args, "ERR SCRIPT FLUSH only support SYNC|ASYNC option")?;
        cx.shared.scripts.flush();
        interpreters::tell_workers(cx.shared);
        cx.reply().ok();
        Ok(())
    }),
};

/// Fails unless nothing or a mode, which makes no difference here, follows FLUSH.
pub(super) fn check_flush_mode(args: Args<'_>, wrong: &'static str) -> Result<(), Error> {
    let is_mode = |arg: &[u8]| is_word(arg, "ASYNC") || is_word(arg, "SYNC");
    match args.get(2) {
        None => Ok(()),
        Some(mode) if args.len() == 3 && is_mode(mode) => Ok(()),
        Some(_) => Err(Error::fixed(wrong)),
    }
}

static KILL: ServerCommand = ServerCommand {
    spec: Spec {
        name: "kill",
        summary: "Ends the script that is running, unless it has written.",
        arity: 2,
        flags: Flags::NOSCRIPT.union(Flags::ALLOW_BUSY),
        tips: &["request_policy:all_shards", "response_policy:one_succeeded"],
        ..SUBCOMMAND
    },
    run: ServerRun::Plain(|cx| {
        busy::kill(cx.shared, Kind::Script)?;
        cx.reply().ok();
        Ok(())
    }),
};

static DEBUG: ServerCommand = ServerCommand {
    spec: Spec {
        name: "debug",
        summary: "Chooses how scripts of this client are debugged.",
        since: "3.2.0",
        arity: 3,
        arguments: &[Argument::one_of(
            "mode",
            &[
                Argument::word("yes", "YES"),
                Argument::word("sync", "SYNC"),
                Argument::word("no", "NO"),
            ],
        )],
        ..SUBCOMMAND
    },
    run: ServerRun::Plain(debug),
};

fn debug(cx: &mut ServerCx<'_>) -> Result<(), Error> {
    if !cx.reply().is_empty() {
        return Err(Error::fixed("ERR SCRIPT DEBUG must be called outside a pipeline"));
    }
    let mode = match &cx.args[2] {
        mode if is_word(mode, "NO") => None,
        mode if is_word(mode, "YES") => Some(DebugMode::Forked),
        mode if is_word(mode, "SYNC") => Some(DebugMode::InStep),
        _ => return Err(Error::fixed("ERR Use SCRIPT DEBUG YES/SYNC/NO")),
    };
    cx.connection.debug_mode = mode;
    cx.reply().ok();
    Ok(())
}

static HELP: ServerCommand = ServerCommand {
    spec: help_spec("5.0.0", Group::Scripting),
    run: ServerRun::Plain(|cx| {
        write_help(
            cx.reply(),
            "SCRIPT",
            &[
                "DEBUG (YES|SYNC|NO)",
                "    Chooses how scripts of this client are debugged: with what they write undone,",
                "    in step with the server, or not at all.",
                "EXISTS <sha1> [<sha1> ...]",
                "    Tells of each SHA1 whether its script is loaded.",
                "FLUSH [ASYNC|SYNC]",
                "    Forgets all scripts.",
                "KILL",
                "    Ends the script that is running, unless it has written.",
                "LOAD <script>",
                "    Compiles a script and keeps it without running it.",
                "SHOW <sha1>",
                "    Returns the text of a loaded script.",
            ],
        );
        Ok(())
    }),
};
