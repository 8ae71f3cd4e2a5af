//! COMMAND: what commands there are, all derived from the one table.

use kvasir_keyspace::error::Error;
use kvasir_keyspace::spec::{Argument, ArgumentKind, Categories, Flags, Group, KeyFlags, Spec};
use kvasir_resp::args::Args;
use kvasir_structures::glob::{self, Case};
use kvasir_table::categories::categories;
use kvasir_table::keys::each_key_used;
use kvasir_table::{Entry, Table};

use crate::commands::command_docs::write_docs;
use crate::commands::command_info::{write_info, write_key_flags};
use crate::commands::{ANY_TIME, help_spec, is_word, write_help};
use crate::run::server::{ServerCommand, ServerCx, ServerRun};

pub static COMMANDS: &[&ServerCommand] = &[&COMMAND];

/// Most of the family's rows.
const BLANK: Spec = Spec {
    group: Group::Server,
    flags: ANY_TIME,
    categories: Categories::CONNECTION,
    ..Spec::BLANK
};
const COMMAND_NAMES: &[Argument] = &[Argument::string("command-name").optional().multiple()];

static COMMAND: ServerCommand = ServerCommand {
    spec: Spec {
        name: "command",
        summary: "Describes all commands.",
        since: "2.8.13",
        complexity: "O(N) in the number of commands",
        arity: -1,
        tips: &["nondeterministic_output_order"],
        ..BLANK
    },
    run: ServerRun::Family(
        describe_all,
        &[
            &COMMAND_COUNT,
            &COMMAND_DOCS,
            &COMMAND_GETKEYS,
            &COMMAND_GETKEYSANDFLAGS,
            &COMMAND_HELP,
            &COMMAND_INFO,
            &COMMAND_LIST,
        ],
    ),
};

fn describe_all(cx: &mut ServerCx<'_>) -> Result<(), Error> {
    let table = &cx.shared.table;
    let all = || callable(table).filter(|entry| !is_subcommand(entry));
    let reply = cx.reply();
    reply.array(all().count());
    all().for_each(|entry| write_info(reply, table, entry));
    Ok(())
}

/// The commands that `rename-command` has left.
fn callable(table: &Table) -> impl Iterator<Item = &Entry> {
    table.entries().iter().filter(|entry| !entry.is_removed)
}

pub fn is_subcommand(entry: &Entry) -> bool {
    entry.full_name.contains('|')
}

static COMMAND_COUNT: ServerCommand = ServerCommand {
    spec: Spec {
        name: "count",
        summary: "Counts the commands.",
        since: "2.8.13",
        arity: 2,
        ..BLANK
    },
    run: ServerRun::Plain(|cx| {
        let entries = callable(&cx.shared.table);
        let count = entries.filter(|entry| !is_subcommand(entry)).count();
        cx.reply().integer(count as i64);
        Ok(())
    }),
};

static COMMAND_INFO: ServerCommand = ServerCommand {
    spec: Spec {
        name: "info",
        summary: "Describes these commands, or all: arity, flags, keys, categories.",
        since: "2.8.13",
        complexity: "O(N) in the number of commands asked for",
        arity: -2,
        tips: &["nondeterministic_output_order"],
        history: &[("7.0.0", "Describes all commands when none is named.")],
        arguments: COMMAND_NAMES,
        ..BLANK
    },
    run: ServerRun::Plain(info),
};

fn info(cx: &mut ServerCx<'_>) -> Result<(), Error> {
    if cx.args.len() == 2 {
        return describe_all(cx);
    }
    let (table, names) = (&cx.shared.table, cx.args.from(2));
    let reply = cx.reply();
    reply.array(names.len());
    for name in names {
        match table.find_full(name) {
            Some(entry) => write_info(reply, table, entry),
            None => reply.null(),
        }
        if reply.is_cut() {
            break;
        }
    }
    Ok(())
}

static COMMAND_DOCS: ServerCommand = ServerCommand {
    spec: Spec {
        name: "docs",
        summary: "Tells what these commands, or all, do and take.",
        since: "7.0.0",
        complexity: "O(N) in the number of commands asked for",
        arity: -2,
        tips: &["nondeterministic_output_order"],
        arguments: COMMAND_NAMES,
        ..BLANK
    },
    run: ServerRun::Plain(docs),
};

fn docs(cx: &mut ServerCx<'_>) -> Result<(), Error> {
    let (table, names) = (&cx.shared.table, cx.args.from(2));
    let entries: Vec<&Entry> = if names.is_empty() {
        callable(table).filter(|entry| !is_subcommand(entry)).collect()
    } else {
        names.iter().filter_map(|name| table.find_full(name)).collect()
    };
    let reply = cx.reply();
    reply.map(entries.len());
    for entry in entries {
        write_docs(reply, table, entry);
        if reply.is_cut() {
            break;
        }
    }
    Ok(())
}

static COMMAND_LIST: ServerCommand = ServerCommand {
    spec: Spec {
        name: "list",
        summary: "Names the commands.",
        since: "7.0.0",
        complexity: "O(N) in the number of commands",
        arity: -2,
        tips: &["nondeterministic_output_order"],
        arguments: &[Argument::one_of(
            "filterby",
            &[
                Argument::string("module-name").token("MODULE"),
                Argument::string("category").token("ACLCAT"),
                Argument::new("pattern", ArgumentKind::Pattern).token("PATTERN"),
            ],
        )
        .token("FILTERBY")
        .optional()],
        ..BLANK
    },
    run: ServerRun::Plain(list),
};

/// Subcommands are in it, with their full names.
fn list(cx: &mut ServerCx<'_>) -> Result<(), Error> {
    let matches = parse_filter(cx.args)?;
    let names: Vec<&str> = callable(&cx.shared.table)
        .filter(|entry| matches(entry))
        .map(|entry| entry.full_name.as_str())
        .collect();
    let reply = cx.reply();
    reply.set(names.len());
    names.iter().for_each(|name| reply.bulk(name.as_bytes()));
    Ok(())
}

type Filter<'a> = Box<dyn Fn(&Entry) -> bool + 'a>;

/// No module and no unknown category has any command.
fn parse_filter(args: Args<'_>) -> Result<Filter<'_>, Error> {
    let (Some(by), Some(word), Some(value), 5) =
        (args.get(2), args.get(3), args.get(4), args.len())
    else {
        return if args.len() == 2 { Ok(Box::new(|_| true)) } else { Err(Error::SYNTAX) };
    };
    if !is_word(by, "filterby") {
        return Err(Error::SYNTAX);
    }
    match word.to_ascii_lowercase().as_slice() {
        b"module" => Ok(Box::new(|_| false)),
        b"aclcat" => {
            Ok(Box::new(|entry| categories(entry).iter().any(|category| is_word(value, category))))
        }
        b"pattern" => {
            Ok(Box::new(|entry| glob::matches(value, entry.full_name.as_bytes(), Case::Ignored)))
        }
        _ => Err(Error::SYNTAX),
    }
}

static COMMAND_GETKEYS: ServerCommand = ServerCommand {
    spec: Spec {
        name: "getkeys",
        summary: "Finds the keys in a call.",
        since: "2.8.13",
        complexity: "O(N) in the number of arguments of the call",
        arity: -3,
        ..BLANK
    },
    run: ServerRun::Plain(|cx| {
        let call = cx.args.from(2);
        let keys = keys_of(&cx.shared.table, call)?;
        let reply = cx.reply();
        reply.array(keys.len());
        keys.iter().for_each(|(arg, _)| reply.bulk(&call[*arg]));
        Ok(())
    }),
};

static COMMAND_GETKEYSANDFLAGS: ServerCommand = ServerCommand {
    spec: Spec {
        name: "getkeysandflags",
        summary: "Finds the keys in a call, and tells what the call does with each.",
        since: "7.0.0",
        complexity: "O(N) in the number of arguments of the call",
        arity: -3,
        ..BLANK
    },
    run: ServerRun::Plain(|cx| {
        let call = cx.args.from(2);
        let keys = keys_of(&cx.shared.table, call)?;
        let reply = cx.reply();
        reply.array(keys.len());
        for (arg, flags) in keys {
            reply.array(2);
            reply.bulk(&call[arg]);
            write_key_flags(reply, flags);
        }
        Ok(())
    }),
};

/// Which arguments of a call are keys, and what it does with them.
fn keys_of(table: &Table, call: Args<'_>) -> Result<Vec<(usize, KeyFlags)>, Error> {
    let entry = table.resolve(call).map_err(|_| Error::fixed("ERR Invalid command specified"))?;
    let spec = entry.spec;
    if spec.keys.iter().all(|key| key.flags.contains(KeyFlags::NOT_KEY)) {
        return Err(Error::fixed("ERR The command has no key arguments"));
    }
    if !spec.accepts_count(call.len()) {
        return Err(Error::fixed("ERR Invalid number of arguments specified for command"));
    }
    let mut keys = Vec::new();
    let found = each_key_used(spec, call, |arg, flags| keys.push((arg, flags)));
    if (found.is_err() || keys.is_empty()) && !spec.flags.contains(Flags::NO_MANDATORY_KEYS) {
        return Err(Error::fixed("ERR Invalid arguments specified for command"));
    }
    Ok(keys)
}

static COMMAND_HELP: ServerCommand = ServerCommand {
    spec: Spec { categories: Categories::CONNECTION, ..help_spec("5.0.0", Group::Server) },
    run: ServerRun::Plain(|cx| {
        write_help(&mut cx.connection.reply, "COMMAND", HELP);
        Ok(())
    }),
};

static HELP: &[&str] = &[
    "(no subcommand)",
    "    Describes all commands.",
    "COUNT",
    "    How many commands there are.",
    "DOCS [<command-name> ...]",
    "    What these commands, or all, do and take.",
    "GETKEYS <full-command>",
    "    The keys in a call.",
    "GETKEYSANDFLAGS <full-command>",
    "    The keys in a call, and what it does with each.",
    "INFO [<command-name> ...]",
    "    Arity, flags, keys and categories of these commands, or of all.",
    "LIST [FILTERBY (MODULE <module-name>|ACLCAT <category>|PATTERN <pattern>)]",
    "    The names of all commands, or of some.",
];
