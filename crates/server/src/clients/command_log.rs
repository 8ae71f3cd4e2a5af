//! The command logs: calls that were slow, calls that were large, calls with large replies.
//!
//! Each log keeps the newest entries, up to its `-max-len`. An entry is cut to what a person reads:
//! 32 arguments of 128 bytes. What is secret in a call is never kept.

use std::collections::VecDeque;
use std::sync::{Mutex, MutexGuard};

use kvasir_config::Config;
use kvasir_keyspace::error::Error;
use kvasir_resp::args::Args;
use kvasir_structures::locks::lock;
use kvasir_table as table;

use crate::clients::Client;

/// Which log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    Slow,
    LargeRequest,
    LargeReply,
}

/// An entry keeps so many arguments, the note about those left out among them.
const ARGS_MAX: usize = 32;
/// And so many bytes of each.
const ARG_LEN_MAX: usize = 128;
/// What is shown in place of a secret.
pub const REDACTED: &[u8] = b"(redacted)";

#[derive(Clone)]
pub struct Entry {
    pub id: u64,
    /// Seconds since 1970.
    pub time_s: u64,
    /// Microseconds or bytes.
    pub value: u64,
    pub args: Vec<Vec<u8>>,
    pub address: String,
    pub name: String,
}

#[derive(Default)]
struct Log {
    next_id: u64,
    /// Newest first.
    entries: VecDeque<Entry>,
}

/// All three logs.
#[derive(Default)]
pub struct CommandLogs([Mutex<Log>; 3]);

/// A call that somebody wants to hear of.
pub struct Noted<'a> {
    pub entry: &'a table::Entry,
    pub args: Args<'a>,
    pub client: &'a Client,
}

impl Kind {
    pub fn parse(word: &[u8]) -> Result<Kind, Error> {
        match word.to_ascii_lowercase().as_slice() {
            b"slow" => Ok(Kind::Slow),
            b"large-request" => Ok(Kind::LargeRequest),
            b"large-reply" => Ok(Kind::LargeReply),
            _ => Err(Error::fixed(
                "ERR type should be one of the following: slow, large-request, large-reply",
            )),
        }
    }

    fn len_max(self, config: &Config) -> u64 {
        match self {
            Kind::Slow => config.commandlog.slow_execution_max_len,
            Kind::LargeRequest => config.commandlog.large_request_max_len,
            Kind::LargeReply => config.commandlog.large_reply_max_len,
        }
    }
}

impl CommandLogs {
    /// Adds a call at the front, and drops what is too much at the back.
    pub fn add(&self, kind: Kind, value: u64, call: &Noted<'_>, time_s: u64, config: &Config) {
        let args = kept_args(&call.entry.full_name, call.args);
        let (address, name) = (call.client.address.to_string(), call.client.names().name);
        let mut log = self.log(kind);
        let id = log.next_id;
        log.next_id += 1;
        log.entries.push_front(Entry { id, time_s, value, args, address, name });
        log.entries.truncate(kind.len_max(config) as usize);
    }

    pub fn len(&self, kind: Kind) -> usize {
        self.log(kind).entries.len()
    }

    pub fn is_empty(&self, kind: Kind) -> bool {
        self.len(kind) == 0
    }

    pub fn reset(&self, kind: Kind) {
        let entries = std::mem::take(&mut self.log(kind).entries);
        drop(entries);
    }

    /// The newest entries, newest first.
    pub fn newest(&self, kind: Kind, count: usize) -> Vec<Entry> {
        self.log(kind).entries.iter().take(count).cloned().collect()
    }

    fn log(&self, kind: Kind) -> MutexGuard<'_, Log> {
        lock(&self.0[kind as usize])
    }
}

/// The arguments as an entry keeps them: secrets hidden, long ones cut, many ones summed up.
pub fn kept_args(full_name: &str, args: Args<'_>) -> Vec<Vec<u8>> {
    let left_out = if args.len() > ARGS_MAX { args.len() - (ARGS_MAX - 1) } else { 0 };
    let kept = args.len() - left_out;
    let mut all: Vec<Vec<u8>> = (0..kept)
        .map(|index| match is_secret(full_name, args, index) {
            true => REDACTED.to_vec(),
            false => cut(&args[index]),
        })
        .collect();
    if left_out > 0 {
        all.push(format!("... ({left_out} more arguments)").into_bytes());
    }
    all
}

fn cut(arg: &[u8]) -> Vec<u8> {
    match arg.len().checked_sub(ARG_LEN_MAX) {
        None | Some(0) => arg.to_vec(),
        Some(more) => [&arg[..ARG_LEN_MAX], format!("... ({more} more bytes)").as_bytes()].concat(),
    }
}

/// Options whose values are secrets.
const SECRET_OPTIONS: [&str; 7] = [
    "masterauth",
    "masteruser",
    "primaryauth",
    "primaryuser",
    "requirepass",
    "tls-client-key-file-pass",
    "tls-key-file-pass",
];

/// Whether an argument of a call must not be shown to anybody: passwords, and who has them.
pub fn is_secret(full_name: &str, args: Args<'_>, index: usize) -> bool {
    let follows = |word: &str, distance: usize| {
        index >= distance && args[index - distance].eq_ignore_ascii_case(word.as_bytes())
    };
    match full_name {
        "auth" => index >= 1,
        "hello" => index >= 3 && (follows("auth", 1) || index >= 4 && follows("auth", 2)),
        "acl|setuser" | "acl|deluser" | "acl|getuser" => index >= 2,
        "config|set" => {
            index >= 3 && index % 2 == 1 && SECRET_OPTIONS.iter().any(|name| follows(name, 1))
        }
        "migrate" => {
            index >= 7
                && (follows("auth", 1) || follows("auth2", 1) || index >= 8 && follows("auth2", 2))
        }
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use kvasir_resp::args::ArgsBuf;

    fn check(full_name: &str, call: &str, kept: &str) {
        let args = call.split(' ').collect::<ArgsBuf>();
        let words: Vec<String> = kept_args(full_name, args.as_args())
            .into_iter()
            .map(|arg| String::from_utf8(arg).unwrap())
            .collect();
        assert_eq!(words.join(" "), kept);
    }

    #[test]
    fn secrets_are_hidden() {
        check("get", "GET auth", "GET auth");
        check("auth", "AUTH u p", "AUTH (redacted) (redacted)");
        check(
            "hello",
            "HELLO 3 AUTH u p SETNAME n",
            "HELLO 3 AUTH (redacted) (redacted) SETNAME n",
        );
        check("acl|setuser", "ACL SETUSER u >p", "ACL SETUSER (redacted) (redacted)");
        check(
            "config|set",
            "CONFIG SET timeout 1 RequirePass x",
            "CONFIG SET timeout 1 RequirePass (redacted)",
        );
        check(
            "config|set",
            "CONFIG SET timeout requirepass x y",
            "CONFIG SET timeout requirepass x y",
        );
        check(
            "migrate",
            "MIGRATE h 1 k 0 9 AUTH2 u p",
            "MIGRATE h 1 k 0 9 AUTH2 (redacted) (redacted)",
        );
    }

    #[test]
    fn entries_are_cut_as_in_redis() {
        let long = "x".repeat(130);
        let cut = format!("SET k {}... (2 more bytes)", "x".repeat(128));
        check("set", &format!("SET k {long}"), &cut);
        let call = |count: usize| vec!["DEL"; count].join(" ");
        check("del", &call(32), &call(32));
        check("del", &call(33), &format!("{} ... (2 more arguments)", call(31)));
    }
}
