//! SAVE, BGSAVE, LASTSAVE, and DEBUG RELOAD.

use kvasir_keyspace::error::Error;
use kvasir_keyspace::spec::{Argument, Categories, Flags, Group, Spec};
use kvasir_persistence::load::{Entrance, FileError, manifest};

use crate::commands::{ANY_TIME_FAST, is_word};
use crate::loading;
use crate::log::warning;
use crate::run::server::{ServerCommand, ServerCx, ServerRun};

pub static COMMANDS: &[&ServerCommand] = &[&LASTSAVE, &SAVE, &BGSAVE];

const ADMIN_LOADED: Flags = Flags::ADMIN.union(Flags::NOSCRIPT).union(Flags::NO_ASYNC_LOADING);

static LASTSAVE: ServerCommand = ServerCommand {
    spec: Spec {
        name: "lastsave",
        summary: "Tells when the data was last saved: the server's start, if it never was.",
        group: Group::Server,
        flags: ANY_TIME_FAST,
        categories: Categories::ADMIN,
        tips: &["nondeterministic_output"],
        ..Spec::BLANK
    },
    run: ServerRun::Plain(|cx| {
        let facts = cx.shared.saving.facts(cx.shared);
        cx.reply().integer(facts.last_save_s as i64);
        Ok(())
    }),
};

static SAVE: ServerCommand = ServerCommand {
    spec: Spec {
        name: "save",
        summary: "Saves the data while everybody waits.",
        group: Group::Server,
        complexity: "O(N) in the number of keys of all databases",
        flags: ADMIN_LOADED.union(Flags::NO_MULTI),
        ..Spec::BLANK
    },
    run: ServerRun::World(|cx| {
        save(cx)?;
        cx.reply().ok();
        Ok(())
    }),
};

fn save(cx: &mut ServerCx<'_>) -> Result<(), Error> {
    let (shared, env) = (cx.shared, cx.core.env.clone());
    shared.saving.save_now(shared, cx.alone(), &env)
}

static BGSAVE: ServerCommand = ServerCommand {
    spec: Spec {
        name: "bgsave",
        summary: "Saves the data in the background.",
        group: Group::Server,
        arity: -1,
        flags: ADMIN_LOADED,
        history: &[("3.2.2", "Takes `SCHEDULE`."), ("8.1.0", "Takes `CANCEL`.")],
        arguments: &[Argument::one_of(
            "operation",
            &[
                Argument::word("schedule", "SCHEDULE").since("3.2.2"),
                Argument::word("cancel", "CANCEL").since("8.1.0"),
            ],
        )
        .optional()],
        ..Spec::BLANK
    },
    run: ServerRun::Plain(bgsave),
};

fn bgsave(cx: &mut ServerCx<'_>) -> Result<(), Error> {
    match cx.args.len() {
        1 => {}
        2 if is_word(&cx.args[1], "schedule") => {}
        2 if is_word(&cx.args[1], "cancel") => return cancel(cx),
        _ => return Err(Error::SYNTAX),
    }
    let begins = cx.shared.saving.ask(cx.shared, cx.args.len() == 2)?;
    let what = if begins { "started" } else { "scheduled" };
    cx.reply().simple(&format!("Background saving {what}"));
    Ok(())
}

fn cancel(cx: &mut ServerCx<'_>) -> Result<(), Error> {
    let (saving, aof) = (&cx.shared.saving, &cx.shared.aof);
    let waits = !saving.is_under_way() && aof.is_rewrite_due();
    if !saving.cancel() {
        return Err(Error::fixed(
            "ERR Background saving is currently not in progress or scheduled",
        ));
    }
    let what = if waits { "Scheduled background" } else { "Background" };
    cx.reply().simple(&format!("{what} saving cancelled"));
    Ok(())
}

/// What DEBUG RELOAD does, in the order of Redis.
struct Reload {
    saves: bool,
    flushes: bool,
    keeps_present: bool,
}

/// Saves the data, forgets it, and loads the file, all while everybody waits.
pub(super) fn reload(cx: &mut ServerCx<'_>) -> Result<(), Error> {
    // What is there by now would take the place of all that is to come.
    cx.shared.saving.loading.check()?;
    let mut what = Reload { saves: true, flushes: true, keeps_present: false };
    for word in cx.args.from(2).iter() {
        match word {
            word if is_word(word, "merge") => what.keeps_present = true,
            word if is_word(word, "noflush") => what.flushes = false,
            word if is_word(word, "nosave") => what.saves = false,
            _ => {
                return Err(Error::fixed(
                    "ERR DEBUG RELOAD only supports the MERGE, NOFLUSH and NOSAVE options.",
                ));
            }
        }
    }
    if what.saves {
        save(cx)?;
    }
    let (shared, env) = (cx.shared, cx.core.env.clone());
    let path = shared.config().persistence.dbfilename.clone();
    let failed = |error: FileError| {
        warning!("can't load {error}");
        Error::fixed("ERR Error trying to load the RDB dump, check server logs.")
    };
    // Nothing is thrown away for a file that is not there.
    manifest(&path).map_err(failed)?;
    if what.flushes {
        let (core, pass) = cx.core_alone();
        loading::forget_all(shared, core, pass);
    }
    let loading = &shared.saving.loading;
    loading.begin();
    let entrance = Entrance::Inside(cx.alone().guests());
    let read = loading::read(shared, &path, entrance, &env, what.keeps_present);
    if read.is_err() && !loading.is_wanted() {
        // The server ends: nobody shall see or save what is there now.
        return loading.check();
    }
    loading.end();
    read.map_err(failed)?;
    shared.aof.rewrite_what_came(shared);
    cx.reply().ok();
    Ok(())
}
