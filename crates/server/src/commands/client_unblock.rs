//! CLIENT UNBLOCK: ending another client's wait, for a key or for what its replies wait for.

use std::sync::atomic::Ordering::Relaxed;

use kvasir_keyspace::error::Error;
use kvasir_keyspace::spec::{Argument, Group, Spec};
use kvasir_resp::number::parse_integer;

use crate::commands::ANY_TIME_ADMIN;
use crate::run::server::{ServerCommand, ServerCx, ServerRun};
use crate::workers::{End, Message};

pub static CLIENT_UNBLOCK: ServerCommand = ServerCommand {
    spec: Spec {
        name: "unblock",
        summary: "Ends another client's wait: for a key as if its time were over or with an error, for \
                  the disk or replicas with an error for each call.",
        since: "5.0.0",
        group: Group::Connection,
        complexity: "O(N) in the number of connections",
        arity: -3,
        flags: ANY_TIME_ADMIN,
        arguments: &[
            Argument::integer("client-id"),
            Argument::one_of(
                "timeout_error",
                &[Argument::word("timeout", "TIMEOUT"), Argument::word("error", "ERROR")],
            )
            .optional(),
        ],
        ..Spec::BLANK
    },
    run: ServerRun::Plain(unblock),
};

fn unblock(cx: &mut ServerCx<'_>) -> Result<(), Error> {
    let end = match cx.args.get(3) {
        None => End::Timeout,
        Some(word) if word.eq_ignore_ascii_case(b"timeout") => End::Timeout,
        Some(word) if word.eq_ignore_ascii_case(b"error") => End::Error,
        Some(_) => {
            return Err(Error::fixed("ERR CLIENT UNBLOCK reason should be TIMEOUT or ERROR"));
        }
    };
    if cx.args.len() > 4 {
        return Err(Error::wrong_arity("client|unblock"));
    }
    let id = parse_integer(&cx.args[2]).ok_or(Error::NOT_INTEGER)?;
    let waits = |id: i64| {
        let client = cx.shared.clients.find(u64::try_from(id).ok()?)?;
        let waits = client.is_blocked.load(Relaxed) || client.is_held_back.load(Relaxed);
        waits.then_some(client)
    };
    let client = waits(id);
    cx.connection.reply.integer(i64::from(client.is_some()));
    if let Some(client) = client {
        cx.shared.send(client.worker, Message::EndWait(client.id, end));
    }
    Ok(())
}
