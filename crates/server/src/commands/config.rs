//! CONFIG: reading and changing the configuration of the running server.
//!
//! What an option is, and which value it takes, is `crate::config`'s business.

use kvasir_keyspace::error::Error;
use kvasir_keyspace::spec::{Argument, Group, Spec};
use kvasir_structures::glob::{self, Case};

use super::{ANY_TIME_ADMIN, ServerCommand, ServerCx, ServerRun, help_spec, write_help};
use crate::config::command;
use crate::shared::Message;

pub static COMMANDS: &[&ServerCommand] = &[&CONFIG];

static CONFIG: ServerCommand = ServerCommand {
    spec: Spec {
        name: "config",
        summary: "Commands about the configuration.",
        since: "2.0.0",
        group: Group::Server,
        complexity: "Depends on subcommand.",
        arity: -2,
        ..Spec::BLANK
    },
    run: ServerRun::Container(&[&CONFIG_GET, &CONFIG_HELP, &CONFIG_RESETSTAT, &CONFIG_SET]),
};

static CONFIG_GET: ServerCommand = ServerCommand {
    spec: Spec {
        name: "get",
        summary: "Tells the values of options whose names match a pattern.",
        since: "2.0.0",
        group: Group::Server,
        complexity: "O(N) in the number of patterns",
        arity: -3,
        flags: ANY_TIME_ADMIN,
        history: &[("7.0.0", "Takes more than one pattern.")],
        arguments: &[Argument::block("parameter", &[Argument::string("parameter")]).multiple()],
        ..Spec::BLANK
    },
    run: ServerRun::Plain(get),
};

fn get(cx: &mut ServerCx<'_>) -> Result<(), Error> {
    let patterns: Vec<&[u8]> = cx.args.from(2).iter().collect();
    let matches = |pattern: &[u8], name: &[u8]| glob::matches(pattern, name, Case::Ignored);
    let pairs = command::get(&cx.shared.config(), &patterns, matches);
    let reply = cx.reply();
    reply.map(pairs.len());
    for (name, value) in pairs {
        reply.bulk(name.as_bytes());
        reply.bulk(&value);
    }
    Ok(())
}

static CONFIG_SET: ServerCommand = ServerCommand {
    spec: Spec {
        name: "set",
        summary: "Changes options, all of those given or none.",
        since: "2.0.0",
        group: Group::Server,
        complexity: "O(N) in the number of options",
        arity: -4,
        flags: ANY_TIME_ADMIN,
        tips: &["request_policy:all_nodes", "response_policy:all_succeeded"],
        history: &[("7.0.0", "Takes more than one option.")],
        arguments: &[Argument::block(
            "parameter_value",
            &[Argument::string("parameter"), Argument::string("value")],
        )
        .multiple()],
        ..Spec::BLANK
    },
    run: ServerRun::Plain(set),
};

/// This worker obeys the new values from the next command on, the others from their next turn.
fn set(cx: &mut ServerCx<'_>) -> Result<(), Error> {
    let pairs: Vec<&[u8]> = cx.args.from(2).iter().collect();
    let changed = cx.shared.change_config(|config| command::set(config, &pairs));
    changed.map_err(|error| Error::from_bytes(error.message()))?;
    cx.core.refresh(cx.shared);
    cx.shared.send_all(|| Message::Look);
    cx.reply().ok();
    Ok(())
}

static CONFIG_RESETSTAT: ServerCommand = ServerCommand {
    spec: Spec {
        name: "resetstat",
        summary: "Sets the counters that INFO reports back to 0.",
        since: "2.0.0",
        group: Group::Server,
        arity: 2,
        flags: ANY_TIME_ADMIN,
        ..Spec::BLANK
    },
    run: ServerRun::Plain(|cx| {
        cx.shared.workers.iter().for_each(|worker| worker.stats.reset());
        cx.shared.over_limit.reset();
        cx.reply().ok();
        Ok(())
    }),
};

static CONFIG_HELP: ServerCommand = ServerCommand {
    spec: help_spec("5.0.0", Group::Server),
    run: ServerRun::Plain(|cx| {
        write_help(&mut cx.connection.reply, "CONFIG", HELP);
        Ok(())
    }),
};

static HELP: &[&str] = &[
    "GET <pattern> [<pattern> ...]",
    "    Options whose names match, and their values.",
    "RESETSTAT",
    "    Sets the counters of INFO back to 0.",
    "SET <option> <value> [<option> <value> ...]",
    "    Changes options, all or none.",
];
