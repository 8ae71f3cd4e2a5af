//! The thread that takes snapshots in the background.

use std::io;
use std::sync::{Arc, PoisonError};
use std::time::{Duration, Instant};

use kvasir_config::persistence::Persistence;
use kvasir_persistence::cancel::Cancel;
use kvasir_persistence::snapshot::Entrance;
use kvasir_reactor::{clock, thread as reactor_thread};
use kvasir_structures::locks::lock;

use crate::log::notice;
use crate::store::saving::{Current, Saving, State, changes};
use crate::store::tuning::env;
use crate::store::{Store, aof};

/// How often save points are looked at.
const LOOK: Duration = Duration::from_secs(1);
/// After a failure the next attempt waits at least so long, unless somebody asks.
const RETRY: Duration = Duration::from_secs(5);

/// Starts the thread, which ends with the process.
pub fn start(shared: &'static Store) -> io::Result<()> {
    let run = move || {
        // As do those who visit and write, which it starts: clients shall not wait for them where
        // they have the same processor.
        let _ = reactor_thread::wake_late().and_then(|()| reactor_thread::work_less());
        loop {
            let cancel = wait_for_work(shared);
            take(shared, &cancel);
            lock(&shared.saving.state).current = None;
            shared.freeing.tidy_later();
            shared.saving.changed.notify_all();
        }
    };
    std::thread::Builder::new().name("snapshot".into()).spawn(run)?;
    Ok(())
}

/// Returns once a snapshot is wanted, by somebody or by a save point, which is under way then.
fn wait_for_work(shared: &'static Store) -> Arc<Cancel> {
    let saving = &shared.saving;
    let mut state = lock(&saving.state);
    loop {
        let has_none = |state: &mut State| !state.is_wanted && !shared.aof.wants_rewrite();
        let waited = saving.changed.wait_timeout_while(state, LOOK, has_none);
        (state, _) = waited.unwrap_or_else(PoisonError::into_inner);
        shared.aof.look_whether_late(&shared.keyspace.log);
        let is_wanted = std::mem::take(&mut state.is_wanted);
        if !state.is_closed && (is_wanted || is_due_now(shared, saving, &state)) {
            let cancel = Arc::<Cancel>::default();
            state.current = Some(Current { began: Instant::now(), cancel: Arc::clone(&cancel) });
            return cancel;
        }
        if shared.aof.wants_rewrite() && !saving.loading.is_under_way() {
            drop(state);
            aof::rewrite::run(shared);
            shared.freeing.tidy_later();
            state = lock(&saving.state);
        }
    }
}

fn is_due_now(shared: &Store, saving: &Saving, state: &State) -> bool {
    let last_save_s = state.last_save_s.max(shared.facts.started_ms / 1000);
    let since_s = (clock::now_unix_ms() / 1000).saturating_sub(last_save_s);
    let changes = saving.changes_since_save(changes(shared));
    let since_failure = state.failed.map(|failed| failed.elapsed());
    !saving.loading.is_under_way()
        && is_due(&shared.config().persistence, since_s, changes, since_failure)
}

/// Whether a save point is reached, and the last attempt was none that has just failed.
fn is_due(
    persistence: &Persistence,
    since_s: u64,
    changes: u64,
    since_failure: Option<Duration>,
) -> bool {
    let is_reached = |(seconds, least): (u64, u64)| changes >= least.max(1) && since_s >= seconds;
    since_failure.is_none_or(|since| since >= RETRY) && persistence.save_points().any(is_reached)
}

fn take(shared: &Store, cancel: &Arc<Cancel>) {
    let config = shared.config();
    let env = env(&config, clock::now_unix_ms());
    notice!("Background saving started file={}", config.persistence.dbfilename.display());
    // How it went stands in the log and in INFO.
    let _ = shared.saving.save(shared, Entrance::Gate(shared.gate), &env, cancel);
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
            let is_due = is_due(&persistence, since_s, changes, None);
            assert_eq!(is_due, expect, "{since_s} {changes}");
        }
        assert!(!is_due(&Persistence::default(), 10_000, 10_000, None));
    }

    #[test]
    fn an_attempt_that_failed_is_repeated_after_a_while() {
        let words = ["1", "1"].map(str::to_owned).to_vec();
        let persistence = Persistence { save: words, ..Persistence::default() };
        let is_due = |since_failure| is_due(&persistence, 100, 1, Some(since_failure));
        assert!(!is_due(Duration::ZERO));
        assert!(!is_due(RETRY - Duration::from_millis(1)));
        assert!(is_due(RETRY));
    }
}
