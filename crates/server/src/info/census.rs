//! What is counted of the data for those who may not wait: whoever shows metrics takes no gate and
//! no slot's lock, so that they come also while a script or a debugger has closed the gate.
//!
//! A thread counts for them when they ask, some slots at a time, so that who closes the gate does
//! not wait for it. If it is not done soon they are told what it counted before.

use std::io;
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::{Duration, Instant};

use kvasir_keyspace::place::DbIndex;
use kvasir_keyspace::value::Object;
use kvasir_reactor::clock;
use kvasir_structures::locks::lock;
use kvasir_structures::slot::{SLOTS, Slots};

use crate::info::data::Counts;
use crate::state::shared::Shared;

/// What was counted a shorter time ago is not counted anew.
const FRESH: Duration = Duration::from_secs(1);
/// So long somebody waits who asks.
const PATIENCE: Duration = Duration::from_millis(100);
/// Slots that are looked at without leaving the gate: some 10 us.
const PORTION: usize = 256;

/// What was counted.
#[derive(Default)]
pub struct Counted {
    /// Those with keys.
    pub databases: Vec<Counts>,
    /// Of slots and bucket arrays.
    pub table_bytes: u64,
}

/// Where the thread and those who ask meet.
#[derive(Default)]
pub struct Census {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Default)]
struct State {
    is_wanted: bool,
    counted: Arc<Counted>,
    at: Option<Instant>,
}

/// Starts the thread, which ends with the process.
pub fn start(shared: &'static Shared) -> io::Result<&'static Census> {
    let census: &'static Census = Box::leak(Box::default());
    let run = move || {
        loop {
            census.wait_until_wanted();
            let counted = Arc::new(count(shared));
            let mut state = lock(&census.state);
            (state.counted, state.at) = (counted, Some(Instant::now()));
            drop(state);
            census.changed.notify_all();
        }
    };
    std::thread::Builder::new().name("census".into()).spawn(run)?;
    Ok(census)
}

impl Census {
    /// What is counted now, or was when that was possible.
    pub fn ask(&self) -> Arc<Counted> {
        let is_old = |state: &mut State| state.at.is_none_or(|at| at.elapsed() >= FRESH);
        let mut state = lock(&self.state);
        if is_old(&mut state) {
            state.is_wanted = true;
            self.changed.notify_all();
            let waited = self.changed.wait_timeout_while(state, PATIENCE, is_old);
            (state, _) = waited.unwrap_or_else(PoisonError::into_inner);
        }
        Arc::clone(&state.counted)
    }

    fn wait_until_wanted(&self) {
        let waited = self.changed.wait_while(lock(&self.state), |state| !state.is_wanted);
        waited.unwrap_or_else(PoisonError::into_inner).is_wanted = false;
    }
}

fn count(shared: &Shared) -> Counted {
    let (mut counted, now_ms) = (Counted::default(), clock::now_unix_ms());
    for db in shared.keyspace.indexes() {
        let counts = count_database(shared, db, now_ms, &mut counted.table_bytes);
        counted.databases.extend(counts.filter(|counts| counts.keys > 0));
    }
    counted
}

/// Databases may be exchanged meanwhile: then it is some of each.
fn count_database(
    shared: &Shared,
    db: DbIndex,
    now_ms: u64,
    table_bytes: &mut u64,
) -> impl Iterator<Item = Counts> + use<> {
    let mut counts = None;
    for start in (0..SLOTS).step_by(PORTION) {
        let pass = shared.gate.enter_extra();
        let database = shared.keyspace.database(db, &pass);
        if !database.was_used() {
            break;
        }
        let part = start..(start + PORTION).min(SLOTS);
        let slots = &database.slots()[part.clone()];
        let counts = counts.get_or_insert_with(|| {
            *table_bytes += Slots::<Object>::BYTES as u64;
            Counts::of(db)
        });
        counts.add(&shared.keyspace, part, &pass, now_ms);
        *table_bytes += slots.iter().map(|slot| slot.array_bytes(&pass) as u64).sum::<u64>();
    }
    counts.into_iter()
}
