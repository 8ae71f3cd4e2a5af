//! Commands about the server and its connections, one file a family.

// What a user sets or sends is brought into a smaller type by `try_from` only.
#![cfg_attr(not(test), warn(clippy::cast_possible_truncation))]

pub mod acl;
pub mod acl_check;
pub mod acl_declared;
pub mod acl_file;
pub mod auth;
pub mod client;
pub mod client_durability;
pub mod client_filter;
pub mod client_kill;
pub mod client_list;
pub mod client_pause;
pub mod client_ring;
pub mod client_trace;
pub mod client_tracking;
pub mod client_unblock;
pub mod cluster;
pub mod cluster_change;
pub mod cluster_debug;
pub mod cluster_handover;
mod cluster_help;
pub mod cluster_scan;
pub mod cluster_view;
pub mod command;
pub mod command_docs;
pub mod command_info;
pub mod config;
pub mod connection;
pub mod debug;
pub mod debug_protocol;
pub mod export;
pub mod function;
pub mod graph;
pub mod hot_keys;
pub mod info;
pub mod latency;
pub mod memory;
pub mod memory_report;
pub mod migrate;
pub mod module;
pub mod monitor;
pub mod pubsub;
pub mod reference;
pub mod replica_link;
pub mod replication;
pub mod saving;
pub mod script;
pub mod server;
pub mod slowlog;
pub mod transaction;

use std::sync::LazyLock;

use kvasir_keyspace::error::Error;
use kvasir_keyspace::spec::{Argument, Flags, Group, Spec};
use kvasir_resp::reply::Reply;
use kvasir_table::Table;

use crate::run::server::{ServerCommand, ServerCommands};

/// Every server command, by family.
pub static SERVER_COMMANDS: &[&[&ServerCommand]] = &[
    connection::COMMANDS,
    acl::COMMANDS,
    auth::COMMANDS,
    client::COMMANDS,
    cluster::COMMANDS,
    cluster_scan::COMMANDS,
    command::COMMANDS,
    config::COMMANDS,
    debug::COMMANDS,
    hot_keys::COMMANDS,
    info::COMMANDS,
    latency::COMMANDS,
    memory::COMMANDS,
    migrate::COMMANDS,
    pubsub::COMMANDS,
    module::COMMANDS,
    monitor::COMMANDS,
    replication::COMMANDS,
    replica_link::COMMANDS,
    saving::COMMANDS,
    server::COMMANDS,
    slowlog::COMMANDS,
    transaction::COMMANDS,
    script::COMMANDS,
    function::COMMANDS,
    export::COMMANDS,
    graph::COMMANDS,
];

/// All commands by name.
pub fn table() -> Table {
    let rows = SERVER_COMMANDS.iter().copied().flatten().map(|command| command.row());
    Table::new(&rows.collect::<Vec<_>>())
}

/// The commands about the server, as the table numbers them.
pub fn numbered() -> ServerCommands {
    fn add(to: &mut Vec<&'static ServerCommand>, command: &'static ServerCommand) {
        to.push(command);
        command.subcommands().iter().for_each(|sub| add(to, sub));
    }
    static ALL: LazyLock<Vec<&'static ServerCommand>> = LazyLock::new(|| {
        let mut all = Vec::new();
        SERVER_COMMANDS.iter().copied().flatten().for_each(|command| add(&mut all, command));
        all
    });
    &ALL
}

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

#[cfg(test)]
mod tests {
    use kvasir_table::RenameError;

    use super::*;

    #[test]
    fn every_command_is_found_in_any_case_and_nothing_else() {
        let table = table();
        for entry in table.entries() {
            let upper = entry.full_name.to_uppercase();
            for name in [&entry.full_name, &upper] {
                let found = table.find_full(name.as_bytes());
                assert_eq!(found.map(|found| found.index), Some(entry.index), "{name}");
            }
            assert!(table.find_full(format!("{upper}?").as_bytes()).is_none());
        }
        assert!(table.find(b"").is_none());
        assert!(table.find(&[b'x'; 100_000]).is_none());
    }

    #[test]
    fn renamed_commands_are_found_by_their_new_names_only() {
        let mut table = table();
        let secret = [b's'; 64];
        table.rename(b"Config", &secret).unwrap();
        table.rename(b"get", b"").unwrap();
        table.rename(b"set", b"get").unwrap();
        let name = |name: &[u8]| table.find(name).map(|entry| entry.full_name.as_str());
        assert_eq!([name(b"config"), name(b"set"), name(b"")], [None; 3]);
        assert_eq!([name(&secret), name(b"GET")], [Some("config"), Some("set")]);
        let sub = [&secret[..], b"|set"].concat();
        assert_eq!(table.find_full(&sub).unwrap().full_name, "config|set");
        assert_eq!(table.find_original(b"CONFIG|set").unwrap().full_name, "config|set");
        assert!(table.find_original(b"get").unwrap().is_removed);
        assert_eq!(table.rename(b"nosuch", b"x"), Err(RenameError::NoSuchCommand));
        assert_eq!(table.rename(b"config", b"x"), Err(RenameError::NoSuchCommand));
        assert_eq!(table.rename(b"ping", b"ECHO"), Err(RenameError::NameTaken));
        // Another case of its own name changes nothing.
        assert_eq!(table.rename(b"PING", b"Ping"), Ok(()));
        assert_eq!(table.find(b"ping").map(|entry| entry.full_name.as_str()), Some("ping"));
    }
}
