//! The thread that takes snapshots in the background.

use std::sync::PoisonError;
use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant};

use kvasir_persistence::disk::RealDisk;
use kvasir_persistence::snapshot::Snapshot;
use kvasir_reactor::clock;

use super::{beside, changes, names, options, temporary_name};
use crate::config::persistence::Persistence;
use crate::lock;
use crate::log::notice;
use crate::shared::Shared;
use crate::tuning::env;

/// How often save points are looked at.
const LOOK: Duration = Duration::from_secs(1);
/// After a failure the next attempt waits at least so long, unless somebody asks.
const RETRY_S: u64 = 5;

/// Starts the thread, which ends with the process.
pub fn start(shared: &'static Shared) {
    let run = move || {
        loop {
            wait_for_work(shared);
            take(shared);
        }
    };
    let thread = std::thread::Builder::new().name("snapshot".into()).spawn(run);
    thread.expect("a thread can be started at the start");
}

/// Returns once a snapshot is wanted, by somebody or by a save point.
fn wait_for_work(shared: &Shared) {
    let saving = &shared.saving;
    let mut state = lock(&saving.state);
    let mut last_attempt = Instant::now();
    loop {
        if std::mem::take(&mut state.is_wanted) {
            state.began = Some(Instant::now());
            return;
        }
        if state.has_failed && last_attempt.elapsed().as_secs() >= RETRY_S {
            last_attempt = Instant::now();
        }
        let (woken, _) =
            saving.is_asked.wait_timeout(state, LOOK).unwrap_or_else(PoisonError::into_inner);
        drop(woken);
        let facts = saving.facts(shared);
        let since_s = (clock::now_unix_ms() / 1000).saturating_sub(facts.last_save_s);
        let waits = facts.has_failed && last_attempt.elapsed().as_secs() < RETRY_S;
        let is_due = is_due(&shared.config().persistence, since_s, facts.changes);
        state = lock(&saving.state);
        state.is_wanted |= is_due && !waits && !saving.loading.is_under_way();
    }
}

/// Whether a save point is reached.
fn is_due(persistence: &Persistence, since_s: u64, changes: u64) -> bool {
    persistence.save_points().any(|(seconds, least)| changes >= least.max(1) && since_s >= seconds)
}

fn take(shared: &Shared) {
    let saving = &shared.saving;
    let config = shared.config();
    let env = env(&config, clock::now_unix_ms());
    notice!("snapshot begun file={}", config.persistence.dbfilename.display());
    let name = temporary_name("temp-bg");
    let names = names(&config, &name);
    let (start, changes) = (Instant::now(), changes(shared));
    let snapshot = Snapshot {
        keyspace: &shared.keyspace,
        gate: shared.gate,
        env: &env,
        visitors: config.persistence.snapshot_threads as usize,
        buffer_max: config.persistence.snapshot_buffer as usize,
        progress: &saving.progress,
    };
    let saved = snapshot.run(&RealDisk, names, &options(&config), &beside(shared, &env));
    saving.progress.keys.store(0, Relaxed);
    saving.note_end(shared, names.target, &saved, (start, changes));
    lock(&saving.state).began = None;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn points_are_reached_by_time_and_changes_together() {
        let words = ["900", "1", "60", "100"].map(str::to_owned).to_vec();
        let persistence = Persistence { save: words, ..Persistence::default() };
        for (since_s, changes, expect) in
            [(899, 99, false), (900, 1, true), (900, 0, false), (60, 100, true), (59, 100, false)]
        {
            assert_eq!(is_due(&persistence, since_s, changes), expect, "{since_s} {changes}");
        }
        assert!(!is_due(&Persistence::default(), 10_000, 10_000));
    }
}
