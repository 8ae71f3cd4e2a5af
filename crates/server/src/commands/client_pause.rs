//! CLIENT PAUSE and CLIENT UNPAUSE. What a pause is stands in `crate::pause`.

use kvasir_keyspace::error::Error;
use kvasir_keyspace::spec::{Argument, Group, Spec};
use kvasir_resp::number::parse_integer;

use crate::clients::pause::{Paused, Purpose, Scope};
use crate::commands::{ANY_TIME_ADMIN, is_word};
use crate::run::server::{ServerCommand, ServerCx, ServerRun};
use crate::workers::Message;

pub static CLIENT_PAUSE: ServerCommand = ServerCommand {
    spec: Spec {
        name: "pause",
        summary: "Puts the calls of all clients off for a while.",
        since: "3.0.0",
        group: Group::Connection,
        arity: -3,
        flags: ANY_TIME_ADMIN,
        history: &[("6.2.0", "With `WRITE`, calls that only read go on.")],
        arguments: &[
            Argument::integer("timeout"),
            Argument::one_of(
                "mode",
                &[Argument::word("write", "WRITE"), Argument::word("all", "ALL")],
            )
            .since("6.2.0")
            .optional(),
        ],
        ..Spec::BLANK
    },
    // With the gate closed: nobody is in the middle of a write when this has answered.
    run: ServerRun::World(pause),
};

fn pause(cx: &mut ServerCx<'_>) -> Result<(), Error> {
    let scope = match cx.args.get(3) {
        None => Scope::All,
        Some(word) if is_word(word, "all") => Scope::All,
        Some(word) if is_word(word, "write") => Scope::Writes,
        Some(_) => return Err(Error::fixed("ERR CLIENT PAUSE mode must be WRITE or ALL")),
    };
    let now_ms = cx.core.env.now_ms;
    let timeout_ms = parse_integer(&cx.args[2])
        .ok_or(Error::fixed("ERR timeout is not an integer or out of range"))?;
    let timeout_ms =
        u64::try_from(timeout_ms).map_err(|_| Error::fixed("ERR timeout is negative"))?;
    let until_ms = timeout_ms.checked_add(now_ms).filter(|until| *until <= i64::MAX as u64);
    let until_ms = until_ms.ok_or(Error::fixed("ERR timeout is out of range"))?;
    cx.shared.pause.begin(Purpose::Client, Paused { scope, until_ms }, now_ms);
    cx.core.see_listeners(cx.shared);
    cx.reply().ok();
    Ok(())
}

pub static CLIENT_UNPAUSE: ServerCommand = ServerCommand {
    spec: Spec {
        name: "unpause",
        summary: "Ends the pause: calls that were put off are made.",
        since: "6.2.0",
        group: Group::Connection,
        complexity: "O(N) in the number of clients whose calls were put off",
        arity: 2,
        flags: ANY_TIME_ADMIN,
        ..Spec::BLANK
    },
    run: ServerRun::Plain(|cx| {
        cx.shared.pause.end(Purpose::Client);
        cx.core.see_listeners(cx.shared);
        cx.shared.send_all(|| Message::Look);
        cx.reply().ok();
        Ok(())
    }),
};
