//! CLIENT DURABILITY: what one connection asks of the disk, beyond what the server does for all.
//!
//! It can only ask for more. What `appendfsync` says is a promise to everybody who reads the data,
//! so no client, nor a library in its name, may take it back.

use kvasir_config::aof::Fsync;
use kvasir_keyspace::error::Error;
use kvasir_keyspace::spec::{Argument, Group, Spec};

use crate::commands::{ANY_TIME_NOSCRIPT, is_word};
use crate::run::server::{ServerCommand, ServerCx, ServerRun};

pub static CLIENT_DURABILITY: ServerCommand = ServerCommand {
    spec: Spec {
        name: "durability",
        summary: "Has replies to this connection wait for the disk; without a word: tells whether.",
        since: "7.2.4",
        group: Group::Connection,
        arity: -2,
        flags: ANY_TIME_NOSCRIPT,
        arguments: &[Argument::one_of(
            "durability",
            &[
                Argument::word("always", "ALWAYS"),
                Argument::word("everysec", "EVERYSEC"),
                Argument::word("no", "NO"),
                Argument::word("default", "DEFAULT"),
            ],
        )
        .optional()],
        ..Spec::BLANK
    },
    run: ServerRun::Plain(durability),
};

fn durability(cx: &mut ServerCx<'_>) -> Result<(), Error> {
    let wish = match cx.args.get(2) {
        None => return tell(cx),
        Some(word) if is_word(word, "always") => Some(Fsync::Always),
        Some(word) if is_word(word, "everysec") => Some(Fsync::EverySecond),
        Some(word) if is_word(word, "no") => Some(Fsync::No),
        Some(word) if is_word(word, "default") => None,
        Some(_) => return Err(Error::SYNTAX),
    };
    if cx.args.len() > 3 {
        return Err(Error::wrong_arity("client|durability"));
    }
    if wish.is_some_and(|wish| wish < Fsync::No) && !cx.shared.aof.counts() {
        return Err(Error::fixed("ERR There is no append-only file to wait for."));
    }
    cx.connection.set_durability(cx.shared, wish);
    // From the next call on, even if that stands in the same batch.
    cx.core.see_listeners(cx.shared);
    cx.connection.reply.ok();
    Ok(())
}

/// What holds for the connection.
fn tell(cx: &mut ServerCx<'_>) -> Result<(), Error> {
    let wish = cx.connection.durability.wish.unwrap_or(Fsync::No);
    let word = match wish.min(cx.core.config.aof.appendfsync) {
        _ if !cx.shared.aof.counts() => "no",
        Fsync::Always => "always",
        Fsync::EverySecond => "everysec",
        Fsync::No => "no",
    };
    cx.connection.reply.bulk(word.as_bytes());
    Ok(())
}
