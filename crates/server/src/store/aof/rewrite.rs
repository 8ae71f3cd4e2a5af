//! Rewriting the append-only file: a snapshot becomes its base, with what was logged since behind
//! it.
//!
//! At the snapshot's cut, with the gate closed, the log's end is the place from which on it goes to
//! another increment; so the base and that increment fit together to the byte.

use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use kvasir_keyspace::error::Error;
use kvasir_persistence::cancel::Cancel;
use kvasir_persistence::disk::RealDisk;
use kvasir_persistence::snapshot::Entrance;
use kvasir_reactor::clock;
use kvasir_structures::locks::{lock, wait};

use crate::log::{notice, warning};
use crate::store::Store;
use crate::store::aof::{Aof, Rewrite, switch};
use crate::store::saving::{Base, save_base};
use crate::store::tuning::env;

/// To turn the file on is tried again so long after it has failed.
const RETRY: Duration = Duration::from_secs(5);

impl Aof {
    /// BGREWRITEAOF: has a rewrite begin as soon as that is possible.
    pub fn ask_for_rewrite(&self, shared: &Store) -> Result<(), Error> {
        let mut state = lock(&self.state);
        if state.rewrite.began.is_some() {
            let text = "ERR Background append only file rewriting already in progress";
            return Err(Error::fixed(text));
        }
        let config = shared.config();
        if !self.counts() && !config.aof.appendonly {
            switch::check(shared, Path::new("."), &config).map_err(|refused| {
                warning!("the append-only file can't be rewritten: {}", refused.text());
                Error::fixed("ERR Can't execute an AOF background rewriting. Check server logs.")
            })?;
            state.rewrite.is_base_wanted = true;
        }
        state.rewrite.is_wanted = true;
        drop(state);
        shared.saving.wake();
        Ok(())
    }

    /// Has a rewrite begin now, or when the one under way has ended: data has come that the log
    /// does not tell of. Without a log there is nothing to rewrite.
    pub fn rewrite_what_came(&self, store: &Store) {
        if self.counts() || store.config().aof.appendonly {
            lock(&self.state).rewrite.is_wanted = true;
            store.saving.wake();
        }
    }

    /// Whether a rewrite is under way, or is about to be.
    pub fn is_rewrite_due(&self) -> bool {
        let state = lock(&self.state);
        state.rewrite.began.is_some() || state.rewrite.is_wanted
    }

    pub fn wants_rewrite(&self) -> bool {
        let state = lock(&self.state);
        let Rewrite { is_wanted, retry_at, .. } = state.rewrite;
        !state.is_closed && (is_wanted || retry_at.is_some_and(|at| at <= Instant::now()))
    }
}

/// Rewrites the files; called by the thread that takes snapshots.
pub fn run(shared: &'static Store) {
    let (start, cancel) = (Instant::now(), Arc::<Cancel>::default());
    let mut state = lock(&shared.aof.state);
    (state.rewrite.is_wanted, state.rewrite.retry_at) = (false, None);
    let is_base_wanted = std::mem::take(&mut state.rewrite.is_base_wanted);
    let has_log = shared.config().aof.appendonly;
    if state.is_closed || !(has_log || is_base_wanted) {
        return;
    }
    state.rewrite.began = Some(start);
    state.rewrite.cancel = Arc::clone(&cancel);
    // One that is being turned off has to end before it begins anew.
    let is_on = shared.aof.counts() && !state.is_stopping;
    drop(state);
    notice!("Background append only file rewriting started");
    let done = match (is_on, has_log) {
        (true, _) => rewrite(shared, &cancel),
        (false, true) => switch::turn_on(shared, &cancel),
        (false, false) => switch::write_base(shared, &cancel),
    };
    let took_ms = start.elapsed().as_millis();
    let mut state = lock(&shared.aof.state);
    let rewrite = &mut state.rewrite;
    (rewrite.began, rewrite.last_took) = (None, Some(start.elapsed()));
    shared.aof.changed.notify_all();
    if done.is_err() && cancel.is_asked() {
        drop(state);
        return notice!("rewriting of the append-only file given up took_ms={took_ms}");
    }
    rewrite.has_failed = done.is_err();
    match done {
        Ok(bytes) => {
            rewrite.count += 1;
            rewrite.failures_in_row = 0;
            (state.base_size, state.size) = (bytes, bytes);
            drop(state);
            notice!("Background AOF rewrite finished successfully bytes={bytes} took_ms={took_ms}");
        }
        Err(error) => {
            rewrite.failures_in_row += 1;
            rewrite.retry_at = (has_log && !is_on).then(|| Instant::now() + RETRY);
            drop(state);
            warning!(
                "Background AOF rewrite terminated with error error={error} took_ms={took_ms}"
            );
        }
    }
}

/// Returns the bytes of the new base.
fn rewrite(shared: &Store, cancel: &Arc<Cancel>) -> Result<u64, String> {
    let aof = &shared.aof;
    let config = shared.config();
    let (format, env) = (config.aof.base_format(), env(&config, clock::now_unix_ms()));
    // What is left to tidy up when the log has been turned off is done before others may come.
    let (_claim, base, target) = {
        let mut files = lock(&aof.files);
        let files = files.as_mut().ok_or("there is no append-only file")?;
        let base = files.next_base_in(format);
        (files.claim(), base.clone(), files.path(&base.name))
    };
    let mut has_switched = false;
    let base_file = Base { disk: &RealDisk, target: &target, format };
    let entrance = Entrance::Gate(shared.gate);
    let saved = save_base(shared, &env, cancel, base_file, entrance, |_| {
        has_switched = aof.switch_at(shared.keyspace.log.end(), shared.keyspace.log_db.tell());
    });
    // Whatever became of the snapshot, the log has to have gone on before the next one.
    let first = if has_switched { wait_for_switch(aof) } else { Err("no cut was made".into()) };
    let mut files = lock(&aof.files);
    let Some(files) = &mut *files else {
        // Turned off meanwhile. What is left of the base is not named anywhere.
        let _ = std::fs::remove_file(&target);
        return Err("the append-only file was turned off".into());
    };
    let taken = saved.map_err(|error| error.to_string()).and_then(|saved| {
        let first = first?;
        files.take_base(base.clone(), first).map_err(|error| error.to_string())?;
        Ok((saved.bytes, first))
    });
    let Ok((bytes, first)) = taken else {
        files.drop_base(&base);
        return taken.map(|(bytes, _)| bytes);
    };
    if !config.aof.disable_auto_gc
        && let Err(error) = files.delete_history()
    {
        warning!("can't delete old files of the append-only file error={error}");
    }
    aof.make_good(first);
    Ok(bytes)
}

/// The number of the increment behind the cut.
fn wait_for_switch(aof: &Aof) -> Result<u64, String> {
    let mut state = lock(&aof.state);
    loop {
        if let Some(switched) = state.rewrite.switched.take() {
            return switched;
        }
        state = wait(&aof.changed, &aof.state, state);
    }
}
