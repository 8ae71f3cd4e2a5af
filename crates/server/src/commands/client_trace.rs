//! CLIENT TRACE. How calls are told of stands in `clients/traces.rs`.

use kvasir_keyspace::error::Error;
use kvasir_keyspace::spec::{Argument, Group, Spec};
use kvasir_resp::number::parse_integer;

use crate::clients::traces::Of;
use crate::commands::{ANY_TIME_ADMIN, export, is_word};
use crate::run::server::{ServerCommand, ServerCx, ServerRun};

pub static CLIENT_TRACE: ServerCommand = ServerCommand {
    spec: Spec {
        name: "trace",
        summary: "Shows the connection the calls of some clients, and where their time goes.",
        since: export::SINCE,
        group: Group::Connection,
        arity: -3,
        flags: ANY_TIME_ADMIN,
        arguments: &[Argument::one_of(
            "whose",
            &[
                Argument::integer("client-id").token("ID"),
                Argument::string("addr").token("ADDR"),
                Argument::string("username").token("USER"),
                Argument::word("off", "OFF"),
            ],
        )],
        ..Spec::BLANK
    },
    run: ServerRun::Plain(trace),
};

fn trace(cx: &mut ServerCx<'_>) -> Result<(), Error> {
    let (shared, args) = (cx.shared, cx.args);
    let of = match (args.len(), &args[2]) {
        (3, word) if is_word(word, "off") => {
            cx.connection.stop_tracing(&shared.traces);
            cx.reply().ok();
            return Ok(());
        }
        (4, word) if is_word(word, "id") => {
            let id = parse_integer(&args[3]).and_then(|id| u64::try_from(id).ok());
            let id = id.filter(|id| *id > 0);
            Of::Id(id.ok_or(Error::fixed("ERR client-id should be greater than 0"))?)
        }
        (4, word) if is_word(word, "addr") => {
            Of::Address(String::from_utf8_lossy(&args[3]).into_owned())
        }
        (4, word) if is_word(word, "user") => Of::User(args[3].to_vec()),
        _ => return Err(Error::SYNTAX),
    };
    if cx.connection.in_session {
        return Err(Error::fixed("ERR CLIENT TRACE isn't allowed for DENY BLOCKING client"));
    }
    if !shared.traces.add(cx.connection.client.id, cx.worker, of) {
        return Err(Error::fixed("ERR this connection traces too many clients"));
    }
    cx.connection.listening.is_tracer = true;
    cx.reply().ok();
    Ok(())
}
