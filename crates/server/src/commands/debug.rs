//! DEBUG: for tests and for people who look inside.

use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use kvasir_keyspace::commands::internal;
use kvasir_keyspace::error::Error;
use kvasir_keyspace::spec::{Flags, Group, Spec};
use kvasir_resp::number::parse_integer;

use super::{ANY_TIME_ADMIN, ServerCommand, ServerCx, ServerRun, unknown_word, write_help};
use crate::shared::Message;

pub static COMMANDS: &[&ServerCommand] = &[&DEBUG];

/// One command with words, not a container, as in Redis. The gate is closed for all of them: SLEEP
/// wants it, and nobody hurries a debugger.
static DEBUG: ServerCommand = ServerCommand {
    spec: Spec {
        name: "debug",
        summary: "Looks inside the server, or makes it behave oddly, for tests.",
        group: Group::Server,
        complexity: "Depends on subcommand.",
        arity: -2,
        flags: ANY_TIME_ADMIN.union(Flags::PROTECTED),
        ..Spec::BLANK
    },
    run: ServerRun::World(debug),
};

fn debug(cx: &mut ServerCx<'_>) -> Result<(), Error> {
    let args = cx.args;
    match (args[1].to_ascii_lowercase().as_slice(), args.len()) {
        (b"help", 2) => {
            write_help(cx.reply(), "DEBUG", HELP);
            Ok(())
        }
        (b"object", 3) => cx.run_data(&internal::DEBUG_OBJECT),
        (b"sleep", 3) => sleep(cx),
        (b"set-active-expire", 3) => set_active_expire(cx),
        _ => Err(unknown_word("DEBUG", &args[1])),
    }
}

static HELP: &[&str] = &[
    "OBJECT <key>",
    "    What is known of a key's value inside.",
    "SET-ACTIVE-EXPIRE <0|1>",
    "    Whether expired keys are deleted before somebody asks for them.",
    "SLEEP <seconds>",
    "    Stops the whole server for so long. Decimals allowed.",
];

/// The gate is closed, so everyone waits.
fn sleep(cx: &mut ServerCx<'_>) -> Result<(), Error> {
    let text = std::str::from_utf8(&cx.args[2]).unwrap_or_default();
    let seconds = text.trim().parse::<f64>().unwrap_or(0.0);
    std::thread::sleep(Duration::try_from_secs_f64(seconds).unwrap_or_default());
    cx.reply().ok();
    Ok(())
}

/// Worker 0 is woken: it may sleep without a clock.
fn set_active_expire(cx: &mut ServerCx<'_>) -> Result<(), Error> {
    let is_on = parse_integer(&cx.args[2]).is_some_and(|number| number != 0);
    cx.shared.expires_actively.store(is_on, Relaxed);
    cx.shared.send(0, Message::Look);
    cx.reply().ok();
    Ok(())
}
