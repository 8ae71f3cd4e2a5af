//! CLIENT RING: has a connection over a unix socket go on through memory that both sides share.
//!
//! The reply tells the size, and carries what the client needs: `docs/ring.md`. All else about the
//! connection stays as it was.

use std::sync::atomic::Ordering::Relaxed;

use kvasir_keyspace::error::Error;
use kvasir_keyspace::spec::{Argument, Flags, Group, Spec};
use kvasir_reactor::ring::{RING_BYTES_MAX, RING_BYTES_MIN, Ring};
use kvasir_resp::number::parse_integer;

use crate::commands::{ANY_TIME_NOSCRIPT, is_word};
use crate::run::server::{ServerCommand, ServerCx, ServerRun};
use crate::state::connection::Replies;

pub static CLIENT_RING: ServerCommand = ServerCommand {
    spec: Spec {
        name: "ring",
        summary: "Has this connection go on through memory that it shares with the server.",
        since: "7.2.4",
        group: Group::Connection,
        arity: -2,
        flags: ANY_TIME_NOSCRIPT.union(Flags::NO_MULTI),
        arguments: &[Argument::integer("bytes").token("SIZE").optional()],
        ..Spec::BLANK
    },
    run: ServerRun::Plain(ring),
};

fn ring(cx: &mut ServerCx<'_>) -> Result<(), Error> {
    let options = &cx.core.config.ring;
    let size = match (cx.args.len(), cx.args.get(2)) {
        (2, _) => options.size,
        (4, Some(word)) if is_word(word, "size") => {
            let size = cx.args.get(3).and_then(parse_integer);
            size.and_then(|size| u64::try_from(size).ok()).ok_or(Error::NOT_INTEGER)?
        }
        _ => return Err(Error::SYNTAX),
    };
    let size_max = options.size_max.max(options.size.next_power_of_two());
    let rounded = size.clamp(RING_BYTES_MIN.into(), RING_BYTES_MAX.into()).next_power_of_two();
    if size.max(rounded) > size_max {
        return Err(Error::fixed("ERR A ring is no larger than ring-size-max."));
    }
    let client = &cx.connection.client;
    if !client.is_unix || cx.connection.wire.tls.is_some() {
        return Err(Error::fixed("ERR A ring is for clients of a unix socket."));
    }
    if client.ring_bytes.load(Relaxed) > 0 {
        return Err(Error::fixed("ERR This connection has a ring."));
    }
    if cx.connection.output.replies != Replies::On {
        // Nobody would see why; but without its reply there is no ring.
        return Err(Error::fixed("ERR CLIENT RING needs its reply, which CLIENT REPLY has off."));
    }
    if !cx.connection.reply.is_empty() {
        return Err(Error::fixed("ERR CLIENT RING is asked for on its own, not in a pipeline."));
    }
    if !cx.shared.clients.try_reserve_ring(options.clients_max as usize) {
        return Err(Error::fixed("ERR ring-clients-max connections have a ring."));
    }
    let size = u32::try_from(rounded).expect("it is within the bounds");
    match Ring::new(size) {
        Ok(ring) => {
            client.ring_bytes.store(ring.size_bytes(), Relaxed);
            cx.connection.output.ring = Some(Box::new(ring));
            cx.connection.reply.integer(size.into());
            Ok(())
        }
        Err(error) => {
            cx.shared.clients.give_ring_back();
            Err(Error::new(format!("ERR There can be no ring: {error}")))
        }
    }
}
