//! MONITOR. How calls are told of stands in `crate::monitor`.

use kvasir_keyspace::error::Error;
use kvasir_keyspace::spec::{Group, Spec};

use crate::commands::ANY_TIME_ADMIN;
use crate::run::server::{ServerCommand, ServerCx, ServerRun};

pub static COMMANDS: &[&ServerCommand] = &[&MONITOR];

static MONITOR: ServerCommand = ServerCommand {
    spec: Spec {
        name: "monitor",
        summary: "Shows the connection every call that the server gets.",
        since: "1.0.0",
        group: Group::Server,
        complexity: "",
        arity: 1,
        flags: ANY_TIME_ADMIN,
        ..Spec::BLANK
    },
    run: ServerRun::Plain(monitor),
};

/// Who monitors already gets no second answer.
fn monitor(cx: &mut ServerCx<'_>) -> Result<(), Error> {
    if cx.connection.in_session {
        return Err(Error::fixed("ERR MONITOR isn't allowed for DENY BLOCKING client"));
    }
    if !cx.connection.listening.is_monitor {
        cx.connection.set_monitor(&cx.shared.monitors, cx.worker, true);
        cx.reply().ok();
    }
    Ok(())
}
