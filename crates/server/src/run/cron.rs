//! What a worker does by the clock: worker 0 deletes expired keys, any worker moves records
//! together.
//!
//! Without expiries and without idle limits there is no clock: an idle server sleeps.

use std::sync::atomic::Ordering::{Acquire, Relaxed};
use std::time::Duration;

use kvasir_keyspace::expire::expire_slot;
use kvasir_keyspace::place::{DbIndex, Place};
use kvasir_reactor::clock;
use kvasir_structures::huge_pages;
use kvasir_structures::slot::SLOTS;

use crate::calls::blocking::serve_ready;
use crate::calls::notifications;
use crate::clients::tracker::NOBODY;
use crate::log::notice;
use crate::state::core::Core;
use crate::state::shared::Shared;
use crate::store::defrag;

/// The share of one core that deleting expired keys may take, at `active-expire-effort` 1; each
/// step of effort adds a tenth of that again.
const EXPIRE_SHARE: f64 = 0.25;
/// The longest stay inside the gate; meanwhile the worker's clients wait.
const EXPIRE_STAY: Duration = Duration::from_micros(500);
/// Keys deleted under one lock.
const EXPIRE_BATCH: usize = 16;

/// How long it waits where CLIENT PAUSE keeps it from deleting.
const PAUSED_MS: u64 = 100;

/// Where each round of deleting begins.
const START: Place = Place { db: DbIndex(0), slot: 0 };

pub struct Cron {
    worker: usize,
    next_expiry_run_ms: u64,
    next_second_ms: u64,
    next_defrag: defrag::Next,
    /// Where deleting goes on.
    cursor: Place,
    /// Whether the round under way has seen a key that will expire.
    round_saw_expiry: bool,
    /// Keys that it has deleted.
    round_expired: u64,
}

impl Cron {
    pub fn new(worker: usize) -> Cron {
        Cron {
            worker,
            next_expiry_run_ms: 0,
            next_second_ms: 0,
            next_defrag: defrag::Next::default(),
            cursor: START,
            round_saw_expiry: true,
            round_expired: 0,
        }
    }

    /// How long the worker may sleep.
    pub fn timeout(&self, shared: &Shared, core: &Core, has_connections: bool) -> Option<Duration> {
        let until = |ms: u64| Duration::from_millis(ms.saturating_sub(core.env.now_ms).max(1));
        let watches_clients = core.config.timeout > 0 && has_connections;
        if shared.debugging.pauses_cron.load(Relaxed) {
            return watches_clients.then(|| until(self.next_second_ms));
        }
        let due = [
            self.expires(shared).then_some(self.next_expiry_run_ms),
            watches_clients.then_some(self.next_second_ms),
            self.next_defrag.is_awaited.then_some(self.next_defrag.at_ms),
            shared.targets.due_ms(),
        ];
        due.into_iter().flatten().min().map(until)
    }

    /// Once a second: whether it is time.
    pub fn second_has_passed(&mut self, now_ms: u64) -> bool {
        let passed = now_ms >= self.next_second_ms;
        if passed {
            self.next_second_ms = now_ms + 1000;
        }
        passed
    }

    pub fn run(&mut self, shared: &Shared, core: &mut Core) {
        if let Some(touch) = huge_pages::news() {
            let touch_us = touch.as_micros();
            notice!(
                "huge pages are slow to come: from now on records get small ones first, and huge ones \
                 in the background touch_us={touch_us}"
            );
        }
        if shared.debugging.pauses_cron.load(Relaxed) {
            return;
        }
        if shared.targets.due_ms().is_some_and(|due_ms| core.env.now_ms >= due_ms) {
            shared.targets.close_unused(core.env.now_ms);
        }
        if core.env.now_ms >= self.next_defrag.at_ms {
            let options = &core.config.memory.defrag;
            self.next_defrag = defrag::run(shared, self.worker, options, core.env.now_ms);
        }
        if !self.expires(shared) || core.env.now_ms < self.next_expiry_run_ms {
            return;
        }
        if shared.keeps_data(core.env.now_ms) {
            self.next_expiry_run_ms = core.env.now_ms + PAUSED_MS;
            return;
        }
        let effort = 1.0 + (core.config.active_expire_effort - 1) as f64 / 10.0;
        let pause = if self.expire(shared, core) {
            Duration::from_millis(1000 / core.config.hz.clamp(1, 500) as u64)
        } else {
            EXPIRE_STAY.div_f64(EXPIRE_SHARE * effort)
        };
        self.next_expiry_run_ms = core.env.now_ms + pause.as_millis().max(1) as u64;
    }

    fn expires(&self, shared: &Shared) -> bool {
        self.worker == 0
            && shared.has_expiries.load(Acquire)
            && shared.debugging.expires_actively.load(Relaxed)
    }

    /// Visits due slots until a round is complete or the stay is over; says whether it is complete.
    fn expire(&mut self, shared: &Shared, core: &mut Core) -> bool {
        let is_busy = || shared.keyspace.busy.is_busy();
        let Some(pass) = shared.gate.enter_unless(self.worker, is_busy) else { return true };
        core.see_listeners(shared);
        let start_ns = clock::monotonic_ns();
        let mut is_complete = false;
        while !is_complete && since(start_ns) < EXPIRE_STAY {
            is_complete = self.expire_some(shared, core, &pass, start_ns);
        }
        if !core.tally.ready.is_empty() {
            serve_ready(shared, self.worker, core, &pass);
        }
        notifications::tell(shared, self.worker, core, NOBODY);
        let stay_us = since(start_ns).as_micros() as u64;
        let stats = &shared.workers[self.worker].stats;
        stats.expire_us.add(stay_us);
        stats.expire_capped.add(u64::from(!is_complete));
        if stay_us >= core.thresholds.latency_us {
            shared.latencies.add("expire-cycle", core.env.now_ms / 1000, stay_us / 1000);
        }
        is_complete
    }

    /// Visits up to 256 slots of one database, or skips the database if it was never used. Stops at
    /// a slot with more to do than there is time for; the next call goes on there. Says whether a
    /// round ended.
    fn expire_some(
        &mut self,
        shared: &Shared,
        core: &mut Core,
        pass: &kvasir_structures::gate::Pass<'_>,
        start_ns: u64,
    ) -> bool {
        let Place { db, slot: first } = self.cursor;
        let database = shared.keyspace.database(db, pass);
        let all = SLOTS as u16;
        let last = if database.was_used() { (first + 256).min(all) } else { all };
        for slot in first..last {
            if !database.was_used() {
                break;
            }
            let place = Place { db, slot };
            let (keyspace, env) = (&shared.keyspace, &core.env);
            let tally = &mut core.tally;
            let before = tally.expired;
            while expire_slot(keyspace, pass, place, env, tally, EXPIRE_BATCH) {
                if since(start_ns) >= EXPIRE_STAY {
                    self.round_saw_expiry = true;
                    self.round_expired += tally.expired - before;
                    self.cursor.slot = slot;
                    return false;
                }
            }
            self.round_expired += tally.expired - before;
            self.round_saw_expiry |= database.slot(slot).next_expiry_ms().is_some();
        }
        self.cursor.slot = last;
        last == all && self.next_database(shared)
    }

    /// Behind the last database a round ends; if it saw no expiry, the clock stops, unless one was
    /// set meanwhile: the flag was cleared before the round began. Says whether it ended.
    fn next_database(&mut self, shared: &Shared) -> bool {
        self.cursor = Place { db: DbIndex(self.cursor.db.0 + 1), slot: 0 };
        let is_last = self.cursor.db.0 == shared.keyspace.database_count();
        if is_last {
            self.cursor = START;
            shared.has_expiries.store(self.round_saw_expiry, Relaxed);
            self.round_saw_expiry = false;
            let expired = std::mem::take(&mut self.round_expired);
            shared.workers[self.worker].stats.expired_in_round.set(expired);
        }
        is_last
    }
}

fn since(ns: u64) -> Duration {
    Duration::from_nanos(clock::monotonic_ns().saturating_sub(ns))
}
