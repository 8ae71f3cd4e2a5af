//! CLIENT DURABILITY: what one connection asks of the disk and of replicas, beyond what the server
//! does for all.
//!
//! It can only ask for more. What `appendfsync` says is a promise to everybody who reads the data,
//! so no client, nor a library in its name, may take it back.

use kvasir_config::aof::Fsync;
use kvasir_config::replication::Quorum;
use kvasir_keyspace::error::Error;
use kvasir_keyspace::spec::{Argument, Group, Spec};
use kvasir_resp::number::parse_integer;

use crate::commands::{ANY_TIME_NOSCRIPT, is_word};
use crate::run::server::{ServerCommand, ServerCx, ServerRun};
use crate::workers::Message;

pub static CLIENT_DURABILITY: ServerCommand = ServerCommand {
    spec: Spec {
        name: "durability",
        summary: "Has replies to this connection wait for the disk; without a word: tells whether.",
        since: "7.2.4",
        group: Group::Connection,
        arity: -2,
        flags: ANY_TIME_NOSCRIPT,
        arguments: &[
            Argument::one_of(
                "durability",
                &[
                    Argument::word("always", "ALWAYS"),
                    Argument::word("everysec", "EVERYSEC"),
                    Argument::word("no", "NO"),
                    Argument::word("default", "DEFAULT"),
                ],
            )
            .optional(),
            Argument::block(
                "quorum",
                &[
                    Argument::integer("replicas").token("REPLICAS"),
                    Argument::word("fsync", "FSYNC").optional(),
                ],
            )
            .optional(),
        ],
        ..Spec::BLANK
    },
    run: ServerRun::Plain(durability),
};

fn durability(cx: &mut ServerCx<'_>) -> Result<(), Error> {
    if cx.args.len() == 2 {
        return tell(cx);
    }
    let own = &cx.connection.durability;
    let (mut wish, mut quorum, mut at) = (own.wish, own.quorum, 2);
    let mut has_named = false;
    while let Some(word) = cx.args.get(at) {
        at += 1;
        if is_word(word, "replicas") {
            let count = cx.args.get(at).ok_or(Error::SYNTAX)?;
            let replicas = parse_integer(count).and_then(|count| u32::try_from(count).ok());
            let replicas = replicas.ok_or(Error::NOT_INTEGER)?;
            at += 1;
            let on_disk = cx.args.get(at).is_some_and(|word| is_word(word, "fsync"));
            at += usize::from(on_disk);
            quorum = Quorum { replicas, on_disk };
            continue;
        }
        if std::mem::replace(&mut has_named, true) {
            return Err(Error::wrong_arity("client|durability"));
        }
        if is_word(word, "default") {
            (wish, quorum) = (None, Quorum::default());
        } else {
            let named = |(name, _): &&(&str, Fsync)| is_word(word, name);
            wish = Some(FSYNCS.iter().find(named).ok_or(Error::SYNTAX)?.1);
        }
    }
    if wish.is_some_and(|wish| wish < Fsync::No) && !cx.shared.aof.counts() {
        return Err(Error::fixed("ERR There is no append-only file to wait for."));
    }
    if quorum.replicas > 0 && cx.shared.replication.upstream.is_replica() {
        return Err(Error::fixed("ERR A replica has no word for what other replicas have."));
    }
    cx.connection.set_durability(cx.shared, wish, quorum);
    if quorum.replicas > 0 {
        // It has the stream kept, if it is not.
        cx.shared.send(0, Message::Look);
    }
    // From the next call on, even if that stands in the same batch.
    cx.core.see_listeners(cx.shared);
    cx.connection.reply.ok();
    Ok(())
}

const FSYNCS: &[(&str, Fsync)] =
    &[("always", Fsync::Always), ("everysec", Fsync::EverySecond), ("no", Fsync::No)];

/// What holds for the connection.
fn tell(cx: &mut ServerCx<'_>) -> Result<(), Error> {
    let wish = cx.connection.durability.wish.unwrap_or(Fsync::No);
    let word = match wish.min(cx.core.config.aof.appendfsync) {
        _ if !cx.shared.aof.counts() => "no",
        Fsync::Always => "always",
        Fsync::EverySecond => "everysec",
        Fsync::No => "no",
    };
    let quorum = cx.core.config.replication.quorum().and(cx.connection.durability.quorum);
    let text = match quorum {
        Quorum { replicas: 0, .. } => word.to_owned(),
        Quorum { replicas, on_disk: false } => format!("{word} replicas {replicas}"),
        Quorum { replicas, on_disk: true } => format!("{word} replicas {replicas} fsync"),
    };
    cx.connection.reply.bulk(text.as_bytes());
    Ok(())
}
