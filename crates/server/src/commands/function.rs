//! FCALL, FUNCTION.

use kvasir_keyspace::busy::Kind;
use kvasir_keyspace::error::Error;
use kvasir_keyspace::serial::functions;
use kvasir_keyspace::spec::{Argument, Flags, Group, Spec, Traits};
use kvasir_resp::args::Args;
use kvasir_structures::glob::{self, Case};

use crate::commands::script::{FUNCTION_ARGUMENTS, RUN, RUN_RO, check_flush_mode};
use crate::commands::{help_spec, is_word, write_help};
use crate::run::scripting::{busy, call, interpreters};
use crate::run::server::{ServerCommand, ServerCx, ServerRun};
use crate::run::session::Session;
use crate::scripts::libraries::{Library, Policy};
use crate::state::shared::Shared;

pub static COMMANDS: &[&ServerCommand] = &[&FCALL, &FCALL_RO, &FUNCTION];

static FCALL: ServerCommand = ServerCommand {
    spec: Spec {
        name: "fcall",
        summary: "Calls a function of a loaded library.",
        since: "7.0.0",
        traits: Traits::MAY_REPLICATE,
        arguments: FUNCTION_ARGUMENTS,
        ..RUN
    },
    run: ServerRun::Session(|session| call::call_function(session, false)),
};

static FCALL_RO: ServerCommand = ServerCommand {
    spec: Spec {
        name: "fcall_ro",
        summary: "Calls a function that does not write.",
        arguments: FUNCTION_ARGUMENTS,
        ..RUN_RO
    },
    run: ServerRun::Session(|session| call::call_function(session, true)),
};

static FUNCTION: ServerCommand = ServerCommand {
    spec: Spec {
        name: "function",
        summary: "Loads, lists, dumps and deletes libraries of functions.",
        since: "7.0.0",
        group: Group::Scripting,
        complexity: "That of the subcommand.",
        arity: -2,
        ..Spec::BLANK
    },
    run: ServerRun::Container(&[
        &LOAD, &DELETE, &LIST, &FLUSH, &DUMP, &RESTORE, &STATS, &KILL, &HELP,
    ]),
};

const READS: Flags = Flags::NOSCRIPT;
const WRITES: Flags = Flags::NOSCRIPT.union(Flags::WRITE);

/// The row that the subcommands share.
const SUBCOMMAND: Spec =
    Spec { since: "7.0.0", group: Group::Scripting, flags: READS, ..Spec::BLANK };
const ON_ALL: &[&str] = &["request_policy:all_shards", "response_policy:all_succeeded"];

static LOAD: ServerCommand = ServerCommand {
    spec: Spec {
        name: "load",
        summary: "Adds a library, or replaces the one of its name.",
        complexity: "O(1) beside the time it takes to compile the code.",
        arity: -3,
        flags: WRITES.union(Flags::DENYOOM),
        tips: ON_ALL,
        arguments: &[
            Argument::word("replace", "REPLACE").optional(),
            Argument::string("function-code"),
        ],
        ..SUBCOMMAND
    },
    run: ServerRun::Session(load),
};

fn load(session: Session) -> (Session, Result<(), Error>) {
    let (code, replaces) = match parse_load(session.args()) {
        Ok((code, replaces)) => (code.to_vec(), replaces),
        Err(error) => return (session, Err(error)),
    };
    let (mut session, read) = read_libraries(session, &[code]);
    let result = read.and_then(|libraries| {
        let names: Vec<Vec<u8>> = libraries.iter().map(|library| library.name.clone()).collect();
        change(&mut session, |shared| {
            libraries.into_iter().try_for_each(|library| shared.libraries.add(library, replaces))
        })?;
        names.iter().for_each(|name| session.connection.reply.bulk(name));
        Ok(())
    });
    (session, result)
}

/// The code, and whether it replaces the library of its name.
fn parse_load(args: Args<'_>) -> Result<(&[u8], bool), Error> {
    let (mut replaces, mut next) = (false, 2);
    while next + 1 < args.len() {
        if !is_word(&args[next], "REPLACE") {
            return Err(Error::quoting("ERR Unknown option given: ", &args[next], ""));
        }
        replaces = true;
        next += 1;
    }
    let code = args.get(next).ok_or(Error::fixed("ERR Function code is missing"))?;
    Ok((code, replaces))
}

/// Runs the code of libraries to learn which functions they have, while others are served.
fn read_libraries(session: Session, codes: &[Vec<u8>]) -> (Session, Result<Vec<Library>, Error>) {
    let shared = session.shared();
    call::with_interpreter(session, Kind::Function, |scripting, session| {
        scripting.within(session, Kind::Function, |scripting| {
            codes.iter().map(|code| scripting.read_library(shared, code)).collect()
        })
    })
}

/// Changes the libraries, and has the log get the call.
fn change(
    session: &mut Session,
    change: impl FnOnce(&Shared) -> Result<(), Error>,
) -> Result<(), Error> {
    let call = session.args().into();
    hold_everything(session)?;
    change(session.shared())?;
    session.log_call(&call);
    Ok(())
}

/// The log has changes of libraries in their order, on the right side of each snapshot's cut.
fn hold_everything(session: &mut Session) -> Result<(), Error> {
    if session.is_held() { Ok(()) } else { session.hold_world() }
}

static DELETE: ServerCommand = ServerCommand {
    spec: Spec {
        name: "delete",
        summary: "Deletes a library and its functions.",
        arity: 3,
        flags: WRITES,
        tips: ON_ALL,
        arguments: &[Argument::string("library-name")],
        ..SUBCOMMAND
    },
    run: ServerRun::World(|cx| {
        cx.shared.libraries.remove(&cx.args[2])?;
        cx.log_call();
        cx.reply().ok();
        Ok(())
    }),
};

static LIST: ServerCommand = ServerCommand {
    spec: Spec {
        name: "list",
        summary: "Describes all libraries, or those whose name matches a pattern.",
        complexity: "O(N) where N is the number of functions.",
        arity: -2,
        tips: &["nondeterministic_output_order"],
        arguments: &[
            Argument::string("library-name-pattern").token("LIBRARYNAME").optional(),
            Argument::word("withcode", "WITHCODE").optional(),
        ],
        ..SUBCOMMAND
    },
    run: ServerRun::Plain(list),
};

fn list(cx: &mut ServerCx<'_>) -> Result<(), Error> {
    let (mut pattern, mut with_code, mut next) = (None, false, 2);
    while let Some(word) = cx.args.get(next) {
        next += 1;
        if !with_code && is_word(word, "WITHCODE") {
            with_code = true;
        } else if pattern.is_none() && is_word(word, "LIBRARYNAME") {
            let missing = Error::fixed("ERR library name argument was not given");
            pattern = Some(cx.args.get(next).ok_or(missing)?);
            next += 1;
        } else {
            return Err(Error::quoting("ERR Unknown argument ", word, ""));
        }
    }
    let mut libraries = cx.shared.libraries.all();
    libraries.retain(|library| {
        pattern.is_none_or(|glob| glob::matches(glob, &library.name, Case::Sensitive))
    });
    cx.reply().array(libraries.len());
    libraries.iter().for_each(|library| write_library(cx, library, with_code));
    Ok(())
}

fn write_library(cx: &mut ServerCx<'_>, library: &Library, with_code: bool) {
    let reply = cx.reply();
    reply.map(if with_code { 4 } else { 3 });
    reply.bulk(b"library_name");
    reply.bulk(&library.name);
    reply.bulk(b"engine");
    reply.bulk(b"LUA");
    reply.bulk(b"functions");
    reply.array(library.functions.len());
    for function in &library.functions {
        let info = &function.info;
        reply.map(3);
        reply.bulk(b"name");
        reply.bulk(&info.name);
        reply.bulk(b"description");
        match &info.description {
            Some(description) => reply.bulk(description),
            None => reply.null(),
        }
        reply.bulk(b"flags");
        reply.set(info.flags.names().count());
        info.flags.names().for_each(|name| reply.simple(name));
    }
    if with_code {
        reply.bulk(b"library_code");
        reply.bulk(&library.code);
    }
}

static FLUSH: ServerCommand = ServerCommand {
    spec: Spec {
        name: "flush",
        summary: "Deletes all libraries.",
        complexity: "O(N) where N is the number of functions.",
        arity: -2,
        flags: WRITES,
        tips: ON_ALL,
        arguments: &[Argument::one_of(
            "async",
            &[Argument::word("async", "ASYNC"), Argument::word("sync", "SYNC")],
        )
        .optional()],
        ..SUBCOMMAND
    },
    run: ServerRun::World(|cx| {
        if cx.args.len() > 3 {
            return Err(crate::commands::unknown_word("FUNCTION", &cx.args[1]));
        }
        check_flush_mode(cx.args, "ERR FUNCTION FLUSH only supports SYNC|ASYNC option")?;
        cx.shared.libraries.flush();
        interpreters::tell_workers(cx.shared);
        cx.log_call();
        cx.reply().ok();
        Ok(())
    }),
};

static DUMP: ServerCommand = ServerCommand {
    spec: Spec {
        name: "dump",
        summary: "Returns all libraries as one payload.",
        complexity: "O(N) where N is the number of functions.",
        arity: 2,
        ..SUBCOMMAND
    },
    run: ServerRun::Plain(|cx| {
        let libraries = cx.shared.libraries.all();
        let payload = functions::dump(libraries.iter().map(|library| &library.code[..]));
        cx.reply().bulk(&payload);
        Ok(())
    }),
};

static RESTORE: ServerCommand = ServerCommand {
    spec: Spec {
        name: "restore",
        summary: "Adds the libraries of a payload.",
        complexity: "O(N) where N is the number of functions in the payload.",
        arity: -3,
        flags: WRITES.union(Flags::DENYOOM),
        tips: ON_ALL,
        arguments: &[
            Argument::string("serialized-value"),
            Argument::one_of(
                "policy",
                &[
                    Argument::word("flush", "FLUSH"),
                    Argument::word("append", "APPEND"),
                    Argument::word("replace", "REPLACE"),
                ],
            )
            .optional(),
        ],
        ..SUBCOMMAND
    },
    run: ServerRun::Session(restore),
};

fn restore(session: Session) -> (Session, Result<(), Error>) {
    let (codes, policy) = match parse_restore(session.args()) {
        Ok(parsed) => parsed,
        Err(error) => return (session, Err(error)),
    };
    let (mut session, read) = read_libraries(session, &codes);
    let result = read.and_then(|libraries| {
        change(&mut session, |shared| shared.libraries.restore(libraries, policy))?;
        session.connection.reply.ok();
        Ok(())
    });
    (session, result)
}

fn parse_restore(args: Args<'_>) -> Result<(Vec<Vec<u8>>, Policy), Error> {
    if args.len() > 4 {
        return Err(crate::commands::unknown_word("FUNCTION", &args[1]));
    }
    let policy = match args.get(3) {
        None => Policy::Append,
        Some(word) if is_word(word, "APPEND") => Policy::Append,
        Some(word) if is_word(word, "FLUSH") => Policy::Flush,
        Some(word) if is_word(word, "REPLACE") => Policy::Replace,
        Some(_) => {
            let text =
                "ERR Wrong restore policy given, value should be either FLUSH, APPEND or REPLACE.";
            return Err(Error::fixed(text));
        }
    };
    Ok((functions::undump(&args[2]).map_err(Error::fixed)?, policy))
}

static STATS: ServerCommand = ServerCommand {
    spec: Spec {
        name: "stats",
        summary: "Tells which function runs, and how many there are.",
        arity: 2,
        flags: READS.union(Flags::ALLOW_BUSY),
        tips: &["nondeterministic_output", "request_policy:all_shards", "response_policy:special"],
        ..SUBCOMMAND
    },
    run: ServerRun::Plain(stats),
};

fn stats(cx: &mut ServerCx<'_>) -> Result<(), Error> {
    let (libraries, functions) = cx.shared.libraries.counts();
    let running = busy::running(cx.shared);
    let reply = cx.reply();
    reply.map(2);
    reply.bulk(b"running_script");
    match running {
        None => reply.null(),
        Some(running) => {
            reply.map(3);
            reply.bulk(b"name");
            reply.bulk(&running.name);
            reply.bulk(b"command");
            reply.array(running.command.len());
            running.command.iter().for_each(|word| reply.bulk(word));
            reply.bulk(b"duration_ms");
            reply.integer(running.duration_ms as i64);
        }
    }
    reply.bulk(b"engines");
    reply.map(1);
    reply.bulk(b"LUA");
    reply.map(2);
    reply.bulk(b"libraries_count");
    reply.integer(libraries as i64);
    reply.bulk(b"functions_count");
    reply.integer(functions as i64);
    Ok(())
}

static KILL: ServerCommand = ServerCommand {
    spec: Spec {
        name: "kill",
        summary: "Ends the function that is running, unless it has written.",
        arity: 2,
        flags: READS.union(Flags::ALLOW_BUSY),
        tips: &["request_policy:all_shards", "response_policy:one_succeeded"],
        ..SUBCOMMAND
    },
    run: ServerRun::Plain(|cx| {
        busy::kill(cx.shared, Kind::Function)?;
        cx.reply().ok();
        Ok(())
    }),
};

static HELP: ServerCommand = ServerCommand {
    spec: help_spec("7.0.0", Group::Scripting),
    run: ServerRun::Plain(|cx| {
        write_help(
            cx.reply(),
            "FUNCTION",
            &[
                "LOAD [REPLACE] <code>",
                "    Adds a library, or replaces the one of its name.",
                "DELETE <library>",
                "    Deletes a library and its functions.",
                "LIST [LIBRARYNAME <pattern>] [WITHCODE]",
                "    Describes libraries.",
                "STATS",
                "    Tells which function runs, and how many there are.",
                "KILL",
                "    Ends the function that is running, unless it has written.",
                "FLUSH [ASYNC|SYNC]",
                "    Deletes all libraries.",
                "DUMP",
                "    Returns all libraries as one payload.",
                "RESTORE <payload> [FLUSH|APPEND|REPLACE]",
                "    Adds the libraries of a payload.",
            ],
        );
        Ok(())
    }),
};
