//! DEBUG LOADAOF: all data is thrown away and comes back from the append-only file.
//!
//! Clients are told to wait meanwhile, as at the start, so nothing changes and nothing is logged.
//! What was logged before is written first: the files have all there was.

use std::time::{Duration, Instant};

use kvasir_keyspace::error::Error;
use kvasir_keyspace::view::Env;
use kvasir_structures::gate::ExclusivePass;

use crate::loading::replay::Replayer;
use crate::loading::{append_only, forget_all};
use crate::log::{notice, warning};
use crate::run::session::Session;
use crate::state::shared::Shared;
use crate::store::aof::place::{Found, Place};

/// How often it is looked whether something has come about.
const LOOK: Duration = Duration::from_millis(1);
/// How long the disk may take for what it does not have yet, and for a rewrite under way.
const PATIENCE: Duration = Duration::from_secs(60);

/// Runs it, outside the gate.
pub fn run(mut session: Session) -> (Session, Result<(), Error>) {
    let shared = session.shared();
    if session.is_held() {
        let text = "ERR DEBUG LOADAOF can't be part of a transaction";
        return (session, Err(Error::fixed(text)));
    }
    session.release_others();
    let loading = &shared.saving.loading;
    let mut result = loading.check().and_then(|()| end_rewrite(shared));
    if result.is_ok() {
        loading.begin();
        result = write_all(shared).and_then(|()| load(&mut session));
        if result.is_ok() || loading.is_wanted() {
            loading.end();
        }
    }
    if result.is_ok() {
        notice!("append-only file loaded by DEBUG LOADAOF");
        session.connection.reply.ok();
    }
    (session, result)
}

fn failed(text: impl std::fmt::Display) -> Error {
    warning!("can't load the append-only file again: {text}");
    Error::fixed("ERR Error trying to load the AOF files, check server logs.")
}

fn close_gate(shared: &Shared) -> Result<ExclusivePass<'static>, Error> {
    let busy = &shared.keyspace.busy;
    shared.gate.exclusive_unless(|| busy.is_busy()).ok_or_else(|| busy.error())
}

/// Waits until it is so, but not for ever.
fn wait_until(is_so: impl Fn() -> bool) -> Result<(), Error> {
    let begin = Instant::now();
    while !is_so() {
        if begin.elapsed() >= PATIENCE {
            return Err(failed("the disk takes too long"));
        }
        std::thread::sleep(LOOK);
    }
    Ok(())
}

/// Files must not be replaced while they are read.
fn end_rewrite(shared: &Shared) -> Result<(), Error> {
    wait_until(|| !shared.aof.is_rewrite_due())
}

/// Has the disk get all that was changed so far.
fn write_all(shared: &Shared) -> Result<(), Error> {
    // Who was at work has ended by then.
    drop(close_gate(shared)?);
    if !shared.aof.counts() {
        return Ok(());
    }
    let end = shared.keyspace.log.end();
    shared.aof.demand(end);
    wait_until(|| shared.aof.durable() >= end)
}

fn load(session: &mut Session) -> Result<(), Error> {
    let (shared, commands) = (session.shared(), session.worker.commands);
    let place = Place::of(&shared.config()).map_err(failed)?;
    let found = place.find().map_err(failed)?;
    let Found { manifest, old } = found.ok_or_else(|| failed("there is none"))?;
    forget_all(shared, session.core(), &mut close_gate(shared)?);
    let env = Env { logs: false, fences: false, tracks: false, ..session.core().env.clone() };
    let files = place.files(manifest);
    let replayer = Replayer::new(shared, commands, session.worker.index, &env);
    append_only::load_all(shared, replayer, &files, old.as_deref()).map(drop).map_err(failed)
}
