//! Commands about the server and its connections, one file a family.

// What a user sets or sends is brought into a smaller type by `try_from` only.
#![cfg_attr(not(test), warn(clippy::cast_possible_truncation))]

pub mod acl;
pub mod acl_check;
pub mod acl_file;
pub mod auth;
pub mod client;
pub mod client_durability;
pub mod client_filter;
pub mod client_kill;
pub mod client_line;
pub mod client_list;
pub mod client_pause;
pub mod client_tracking;
pub mod client_unblock;
pub mod cluster;
pub mod command;
pub mod command_docs;
pub mod command_info;
pub mod config;
pub mod connection;
pub mod debug;
pub mod debug_protocol;
pub mod function;
pub mod info;
pub mod latency;
pub mod memory;
pub mod module;
pub mod monitor;
pub mod pubsub;
pub mod reference;
pub mod replication;
pub mod saving;
pub mod script;
pub mod server;
pub mod slowlog;
pub mod transaction;

use kvasir_keyspace::command::Command;
use kvasir_keyspace::error::Error;
use kvasir_keyspace::execute::{Call, Context, execute};
use kvasir_keyspace::logging::{fence_all, log_changes};
use kvasir_keyspace::plan;
use kvasir_keyspace::spec::{Argument, Flags, Group, Spec};
use kvasir_keyspace::waiting::Blocking;
use kvasir_resp::args::Args;
use kvasir_resp::reply::Reply;
use kvasir_structures::gate::{ExclusivePass, Pass};

use crate::connection::Connection;
use crate::session::SessionRun;
use crate::shared::Shared;
use crate::worker::Core;

/// A command that is not about data: its row and its function, in one place.
pub struct ServerCommand {
    pub spec: Spec,
    pub run: ServerRun,
}

#[derive(Clone, Copy)]
pub enum ServerRun {
    Plain(fn(&mut ServerCx<'_>) -> Result<(), Error>),
    /// With the gate closed: nobody else runs.
    World(fn(&mut ServerCx<'_>) -> Result<(), Error>),
    /// So only if the first function says it of the call.
    WorldIf(fn(&Shared, Args<'_>) -> bool, fn(&mut ServerCx<'_>) -> Result<(), Error>),
    /// With the worker whole, since it runs other calls.
    Session(SessionRun),
    /// By its first argument one of these.
    Container(&'static [&'static ServerCommand]),
    /// As a container, but without any argument a command itself.
    Family(fn(&mut ServerCx<'_>) -> Result<(), Error>, &'static [&'static ServerCommand]),
}

/// What a server command works with. Its reply is the connection's.
pub struct ServerCx<'a> {
    pub shared: &'static Shared,
    /// The worker that runs it.
    pub worker: usize,
    pub core: &'a mut Core,
    pub connection: &'a mut Connection,
    pub inside: Inside<'a>,
    pub args: Args<'a>,
}

/// How a server command is inside the gate.
pub enum Inside<'a> {
    /// Not at all, while a busy script has the gate: then only those run that may.
    Nowhere,
    WithOthers(&'a Pass<'a>),
    /// With the gate closed.
    Alone(&'a mut ExclusivePass<'static>),
}

impl Inside<'_> {
    pub fn pass(&self) -> Option<&Pass<'_>> {
        match self {
            Inside::Nowhere => None,
            Inside::WithOthers(pass) => Some(pass),
            Inside::Alone(pass) => Some(pass),
        }
    }
}

/// Every server command, by family.
pub static SERVER_COMMANDS: &[&[&ServerCommand]] = &[
    connection::COMMANDS,
    acl::COMMANDS,
    auth::COMMANDS,
    client::COMMANDS,
    cluster::COMMANDS,
    command::COMMANDS,
    config::COMMANDS,
    debug::COMMANDS,
    info::COMMANDS,
    latency::COMMANDS,
    memory::COMMANDS,
    pubsub::COMMANDS,
    module::COMMANDS,
    monitor::COMMANDS,
    replication::COMMANDS,
    saving::COMMANDS,
    server::COMMANDS,
    slowlog::COMMANDS,
    transaction::COMMANDS,
    script::COMMANDS,
    function::COMMANDS,
];

/// While a data set is loaded, and on a replica that lost its master.
const ANY_TIME: Flags = Flags::LOADING.union(Flags::STALE);
const ANY_TIME_FAST: Flags = ANY_TIME.union(Flags::FAST);
const ANY_TIME_NOSCRIPT: Flags = ANY_TIME.union(Flags::NOSCRIPT);
const ANY_TIME_ADMIN: Flags = ANY_TIME_NOSCRIPT.union(Flags::ADMIN);
/// Commands with which a connection begins or ends.
const HANDSHAKE: Flags =
    ANY_TIME_NOSCRIPT.union(Flags::FAST).union(Flags::NO_AUTH).union(Flags::ALLOW_BUSY);

const ON_OFF: &[Argument] = &[Argument::word("on", "ON"), Argument::word("off", "OFF")];

/// The row that every HELP has.
const fn help_spec(since: &'static str, group: Group) -> Spec {
    Spec {
        name: "help",
        summary: "Lists the subcommands with a line or two about each.",
        since,
        group,
        arity: 2,
        flags: ANY_TIME,
        ..Spec::BLANK
    }
}

const INSIDE: &str = "who may run while a script is busy does without";

impl ServerCx<'_> {
    /// The witness for being inside the gate.
    fn pass(&self) -> &Pass<'_> {
        self.inside.pass().expect(INSIDE)
    }

    /// The witness for being inside the gate alone.
    fn alone(&mut self) -> &mut ExclusivePass<'static> {
        match &mut self.inside {
            Inside::Alone(pass) => pass,
            _ => unreachable!("the gate is closed for such a command"),
        }
    }

    /// Appends the call to the log; the gate is closed.
    fn log_call(&mut self) {
        let Core { env, tally, .. } = &mut *self.core;
        if env.logs {
            tally.entry.push(self.connection.db, self.args.iter());
            let pass = self.inside.pass().expect(INSIDE);
            log_changes(&self.shared.keyspace, pass, [], env, tally);
            fence_all(&self.shared.keyspace, env, tally);
        }
    }

    fn reply(&mut self) -> &mut Reply {
        &mut self.connection.reply
    }

    /// Runs a data command on the arguments of this call.
    fn run_data(&mut self, command: &'static Command) -> Result<(), Error> {
        self.run_data_on(command, self.args)
    }

    /// Runs a data command on other arguments.
    fn run_data_on(&mut self, command: &'static Command, args: Args<'_>) -> Result<(), Error> {
        let (db, pass) = (self.connection.db, self.inside.pass().expect(INSIDE));
        let keyspace = &self.shared.keyspace;
        let mut keys = Vec::new();
        plan::keys(keyspace, command, args, db, &mut keys)?;
        let call = Call { command, args, db, keys: &keys };
        let context = Context {
            env: &self.core.env,
            tally: &mut self.core.tally,
            rng: &mut self.core.rng,
            reply: &mut self.connection.reply,
            blocking: Blocking::Never,
        };
        execute(keyspace, pass, &call, context).map(drop)
    }
}

/// Writes what `<command> HELP` shows: a head, the lines of the family, and HELP itself.
fn write_help(reply: &mut Reply, command: &str, lines: &[&str]) {
    reply.array(lines.len() + 3);
    reply.simple(&format!("{command} <subcommand> [<arg> [value] [opt] ...]. Subcommands are:"));
    lines.iter().for_each(|line| reply.simple(line));
    reply.simple("HELP");
    reply.simple("    Prints this help.");
}

/// Whether an argument is this word, in any case.
fn is_word(arg: &[u8], word: &str) -> bool {
    arg.eq_ignore_ascii_case(word.as_bytes())
}

/// `ON` or `OFF`, `YES` or `NO`, in any case.
fn parse_switch(arg: &[u8], on: &str, off: &str) -> Result<bool, Error> {
    match (is_word(arg, on), is_word(arg, off)) {
        (true, _) => Ok(true),
        (_, true) => Ok(false),
        _ => Err(Error::SYNTAX),
    }
}

/// What DEBUG and others say to a word they do not know.
fn unknown_word(command: &str, word: &[u8]) -> Error {
    Error::quoting(
        "ERR unknown subcommand or wrong number of arguments for '",
        &word[..word.len().min(128)],
        &format!("'. Try {command} HELP."),
    )
}
