//! TIME, LOLWUT, SHUTDOWN.

use std::sync::atomic::Ordering::Relaxed;

use kvasir_keyspace::error::Error;
use kvasir_keyspace::spec::{Argument, Flags, Group, Spec};
use kvasir_reactor::{clock, signal};
use kvasir_resp::args::Args;
use kvasir_resp::number::parse_integer;

use crate::commands::{ANY_TIME_ADMIN, ANY_TIME_FAST, is_word};
use crate::log::{notice, warning};
use crate::machine::version::REDIS_VERSION;
use crate::run::ending;
use crate::run::server::{Inside, ServerCommand, ServerCx, ServerRun};
use crate::state::connection::Replies;
use crate::state::shared::Shared;
use crate::state::waits::{Awaited, Waits};
use crate::store::saving;

pub static COMMANDS: &[&ServerCommand] = &[&TIME, &LOLWUT, &SHUTDOWN];

static TIME: ServerCommand = ServerCommand {
    spec: Spec {
        name: "time",
        summary: "Tells the server's time: seconds since 1970, and microseconds.",
        since: "2.6.0",
        group: Group::Server,
        arity: 1,
        flags: ANY_TIME_FAST,
        tips: &["nondeterministic_output"],
        ..Spec::BLANK
    },
    run: ServerRun::Plain(|cx| {
        let now_us = clock::now_unix_us() as i64;
        let reply = cx.reply();
        reply.array(2);
        reply.bulk_integer(now_us / 1_000_000);
        reply.bulk_integer(now_us % 1_000_000);
        Ok(())
    }),
};

static LOLWUT: ServerCommand = ServerCommand {
    spec: Spec {
        name: "lolwut",
        summary: "Draws a little picture and tells the version.",
        since: "5.0.0",
        group: Group::Server,
        complexity: "",
        arity: -1,
        flags: Flags::READONLY.union(Flags::FAST),
        arguments: &[Argument::integer("version").token("VERSION").optional()],
        ..Spec::BLANK
    },
    run: ServerRun::Plain(lolwut),
};

/// Kvasir was the wisest; of his blood the mead of poetry was brewed.
const MEAD: &str = r"
        .-~~~-.
       /       \      Whoever drinks
      |  ~ ~ ~  |     of this mead
      |  ~ ~ ~  |\    becomes a poet,
      |  ~ ~ ~  | |   or at least
      |  ~ ~ ~  |/    answers GET.
       \_______/
";

/// Other versions than the one there is draw the same; what follows them is not looked at.
fn lolwut(cx: &mut ServerCx<'_>) -> Result<(), Error> {
    if let (Some(word), Some(version)) = (cx.args.get(1), cx.args.get(2))
        && is_word(word, "version")
        && parse_integer(version).is_none()
    {
        return Err(Error::NOT_INTEGER);
    }
    let own = env!("CARGO_PKG_VERSION");
    // Clients look for these words, and read the compatible version behind them.
    let text = format!("{MEAD}\nKvasir ver. {own}, Redis ver. {REDIS_VERSION}\n");
    cx.reply().verbatim(b"txt", text.as_bytes());
    Ok(())
}

static SHUTDOWN: ServerCommand = ServerCommand {
    spec: Spec {
        name: "shutdown",
        summary: "Stops the server.",
        group: Group::Server,
        complexity: "O(N) in the number of keys if they are saved, otherwise O(1)",
        arity: -1,
        flags: ANY_TIME_ADMIN.union(Flags::NO_MULTI).union(Flags::ALLOW_BUSY),
        // Valkey 9 takes SAFE as well, and does not document it.
        history: &[("7.0.0", "Takes `NOW`, `FORCE` and `ABORT`.")],
        arguments: &[
            Argument::one_of(
                "nosave_save",
                &[Argument::word("nosave", "NOSAVE"), Argument::word("save", "SAVE")],
            )
            .optional(),
            Argument::word("now", "NOW").since("7.0.0").optional(),
            Argument::word("force", "FORCE").since("7.0.0").optional(),
            Argument::word("abort", "ABORT").since("7.0.0").optional(),
        ],
        ..Spec::BLANK
    },
    run: ServerRun::WorldIf(needs_world, shutdown),
};

const CANNOT_END: Error = Error::fixed("ERR Errors trying to SHUTDOWN. Check logs.");

/// What a SHUTDOWN asks for.
#[derive(Debug, PartialEq, Eq)]
enum Stop {
    Go { nosave: bool },
    Save,
    Abort,
}

/// Whether a SHUTDOWN saves the data before the server stops.
fn saves_first(shared: &Shared, args: Args<'_>) -> bool {
    match parse_stop(args) {
        // What is loaded so far would take the place of all there is.
        Ok(Stop::Save) => !shared.saving.loading.is_under_way(),
        Ok(Stop::Go { nosave }) => !nosave && saving::saves_at_end(shared),
        Ok(Stop::Abort) | Err(_) => false,
    }
}

/// Whether a SHUTDOWN waits for replicas, or for the end that waits for them already.
fn waits_first(shared: &Shared, args: Args<'_>) -> bool {
    let is_patient = matches!(parse_stop(args), Ok(Stop::Go { .. } | Stop::Save))
        && !args.iter().any(|arg| is_word(arg, "now"));
    // A busy script keeps the gate, and nobody waits for it here.
    is_patient
        && !shared.keyspace.busy.is_busy()
        && (shared.ending.is_under_way() || ending::has_to_wait(shared, &shared.config()))
}

fn needs_world(shared: &Shared, args: Args<'_>) -> bool {
    saves_first(shared, args) || waits_first(shared, args)
}

/// A client that stops the server gets no reply, only the end of its connection.
fn shutdown(cx: &mut ServerCx<'_>) -> Result<(), Error> {
    let (shared, now_ms) = (cx.shared, cx.core.env.now_ms);
    if parse_stop(cx.args)? == Stop::Abort {
        let is_asked = signal::shutdown_requested().is_some();
        if !shared.ending.is_under_way() && !is_asked {
            return Err(Error::fixed("ERR No shutdown in progress."));
        }
        signal::forget_shutdown();
        notice!("Shutdown manually aborted.");
        ending::call_off(shared);
        cx.reply().ok();
        return Ok(());
    }
    if ending::is_unsafe(shared, cx.args.from(1).iter()) {
        return Err(CANNOT_END);
    }
    let client = &cx.connection.client;
    let user = String::from_utf8_lossy(&client.names().user).into_owned();
    let by = format!("client id={} addr={} user={user}", client.id, client.address);
    // It may have become so only now: then the gate is open.
    if waits_first(shared, cx.args) && matches!(cx.inside, Inside::Alone(_)) {
        if !shared.ending.is_under_way() {
            let words = cx.args.from(1).iter();
            let words = words.map(|word| String::from_utf8_lossy(word).into_owned()).collect();
            ending::begin(shared, words, by, now_ms);
            cx.core.see_listeners(shared);
        }
        let connection = &mut *cx.connection;
        connection.client.is_blocked.store(true, Relaxed);
        let is_muted = connection.output.replies != Replies::On;
        let waits = Waits { awaited: Awaited::End, is_muted, made: None, us: 0 };
        connection.waiting.waits = Some(Box::new(waits));
        return Ok(());
    }
    ending::tell_of_replicas(shared, now_ms);
    notice!("User requested shutdown... by={by}");
    if saves_first(shared, cx.args) {
        let env = cx.core.env.clone();
        let saved = shared.saving.save_at_last(shared, cx.alone(), &env);
        let forced = cx.args.iter().any(|arg| is_word(arg, "force"));
        if saved.is_err() && !forced {
            warning!("Error trying to save the DB, can't exit.");
            return Err(CANNOT_END);
        }
    }
    cx.connection.is_closing = true;
    shared.stop();
    Ok(())
}

fn parse_stop(args: Args<'_>) -> Result<Stop, Error> {
    let has = |word: &str| args.from(1).iter().any(|arg| is_word(arg, word));
    let is_known = |arg: &[u8]| {
        ["save", "nosave", "now", "force", "safe", "abort"].iter().any(|word| is_word(arg, word))
    };
    let is_odd = !args.from(1).iter().all(is_known) || (has("save") && has("nosave"));
    match () {
        () if is_odd || (has("abort") && args.len() > 2) => Err(Error::SYNTAX),
        () if has("abort") => Ok(Stop::Abort),
        () if has("save") => Ok(Stop::Save),
        () => Ok(Stop::Go { nosave: has("nosave") }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use kvasir_resp::args::ArgsBuf;

    #[test]
    fn options_of_shutdown() {
        let parse = |text: &str| parse_stop(text.split(' ').collect::<ArgsBuf>().as_args());
        assert_eq!(parse("SHUTDOWN"), Ok(Stop::Go { nosave: false }));
        assert_eq!(parse("shutdown nosave NOW force"), Ok(Stop::Go { nosave: true }));
        assert_eq!(parse("SHUTDOWN SAVE NOW"), Ok(Stop::Save));
        assert_eq!(parse("SHUTDOWN abort"), Ok(Stop::Abort));
        assert_eq!(parse("SHUTDOWN safe"), Ok(Stop::Go { nosave: false }));
        for text in
            ["SHUTDOWN SAFE ABORT", "SHUTDOWN SAVE NOSAVE", "SHUTDOWN ABORT NOW", "SHUTDOWN x"]
        {
            assert_eq!(parse(text), Err(Error::SYNTAX), "{text}");
        }
    }
}
