//! Active defragmentation: records move together, so that pages of the slabs empty and go back to
//! the system.
//!
//! Eviction and deletion leave pages with a few records each. When such memory is more than a part
//! of the data, a walk over all keys moves records out of those pages
//! (`keyspace/src/defragment.rs`), some buckets under one slot lock, at most half a millisecond of
//! a turn, in a share of one core that grows with the waste. Any worker that has a turn goes on
//! with it, one at a time; a server that does nothing else does this to the end, and then sleeps.

use std::sync::Mutex;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant};

use kvasir_config::memory::Defragmentation;
use kvasir_keyspace::defragment::Defragmenter;
use kvasir_structures::slab;
use kvasir_structures::table::Moves;

use crate::store::Store;

/// The longest stay of a turn.
const STAY: Duration = Duration::from_micros(500);
/// Between two looks at how much is wasted.
const LOOK_MS: u64 = 100;
/// After a walk that found nothing to move.
const REST_MS: u64 = 10_000;
/// This part of the data may stand by as empty pages: what goes back is asked for again.
const SPARE_SHARE: usize = 32;

/// What all workers share of it.
#[derive(Default)]
pub struct Defrag {
    state: Mutex<State>,
    /// Share of a core in percent, 0 while nothing is moved.
    running_percent: AtomicU64,
    hits: AtomicU64,
    misses: AtomicU64,
    total_us: AtomicU64,
}

#[derive(Clone, Copy, Default)]
struct State {
    walk: Defragmenter,
    /// Whether there is more to do.
    is_walking: bool,
    /// Records that the walk has moved.
    moved: u64,
    /// Nothing is done before.
    next_ms: u64,
}

/// Figures for INFO.
pub struct Figures {
    pub running_percent: u64,
    pub hits: u64,
    pub misses: u64,
    pub total_ms: u64,
}

impl Defrag {
    pub fn figures(&self) -> Figures {
        Figures {
            running_percent: self.running_percent.load(Relaxed),
            hits: self.hits.load(Relaxed),
            misses: self.misses.load(Relaxed),
            total_ms: self.total_us.load(Relaxed) / 1000,
        }
    }

    pub fn reset_figures(&self) {
        [&self.hits, &self.misses, &self.total_us].iter().for_each(|count| count.store(0, Relaxed));
    }

    fn note(&self, moves: Moves) {
        self.hits.fetch_add(moves.moved, Relaxed);
        self.misses.fetch_add(moves.seen - moves.moved, Relaxed);
    }
}

/// When a worker shall look again, and whether it shall wake for that.
#[derive(Clone, Copy, Default)]
pub struct Next {
    pub at_ms: u64,
    pub is_awaited: bool,
}

/// Does some of what is to do.
pub fn run(shared: &Store, worker: usize, options: &Defragmentation, now_ms: u64) -> Next {
    let later = Next { at_ms: now_ms + LOOK_MS, is_awaited: false };
    // Who comes second has nothing to do: one at a time is what the share is for.
    let Ok(mut state) = shared.defrag.state.try_lock() else { return later };
    if now_ms < state.next_ms {
        return Next { at_ms: state.next_ms, is_awaited: state.is_walking };
    }
    let share = if options.activedefrag { share_percent(options) } else { 0 };
    shared.defrag.running_percent.store(share, Relaxed);
    if share == 0 {
        *state = State { next_ms: later.at_ms, ..State::default() };
        return later;
    }
    let start = Instant::now();
    let has_ended = walk(shared, worker, &mut state, start);
    shared.defrag.total_us.fetch_add(start.elapsed().as_micros() as u64, Relaxed);
    *state = match has_ended {
        false => State { is_walking: true, next_ms: now_ms + pause_ms(share), ..*state },
        // What has not moved will not move soon.
        true if state.moved == 0 => State { next_ms: now_ms + REST_MS, ..State::default() },
        true => State { is_walking: true, next_ms: now_ms + LOOK_MS, ..State::default() },
    };
    Next { at_ms: state.next_ms, is_awaited: state.is_walking }
}

/// Goes on until the stay is over; says whether the walk has come to its end.
fn walk(shared: &Store, worker: usize, state: &mut State, start: Instant) -> bool {
    let is_busy = || shared.keyspace.busy.is_busy();
    let Some(pass) = shared.gate.enter_unless(worker, is_busy) else { return false };
    while start.elapsed() < STAY {
        let Some(moves) = state.walk.step(&shared.keyspace, &pass) else { return true };
        shared.defrag.note(moves);
        state.moved += moves.moved;
    }
    false
}

/// How much of a core the waste is worth, in percent: 0 if it is not above the thresholds. Empty
/// pages are given back first.
fn share_percent(options: &Defragmentation) -> u64 {
    let (mut waste, mut percent) = waste();
    if !is_too_much(options, waste, percent) {
        return 0;
    }
    purge();
    (waste, percent) = self::waste();
    if !is_too_much(options, waste, percent) {
        return 0;
    }
    share_of(options, percent)
}

fn is_too_much(options: &Defragmentation, waste: u64, percent: u64) -> bool {
    percent > options.threshold_lower && waste > options.ignore_bytes
}

/// From the least share at the lower threshold to the greatest at the upper.
fn share_of(options: &Defragmentation, percent: u64) -> u64 {
    let Defragmentation { threshold_lower, threshold_upper, cycle_min, cycle_max, .. } = *options;
    let above =
        percent.clamp(threshold_lower, threshold_upper.max(threshold_lower)) - threshold_lower;
    let span = threshold_upper.saturating_sub(threshold_lower).max(1);
    cycle_min + cycle_max.saturating_sub(cycle_min) * above / span
}

/// After a stay, so that stays make up `percent` of the time.
fn pause_ms(percent: u64) -> u64 {
    (STAY.as_micros() as u64 * (100 - percent.min(99)) / percent.max(1)).div_ceil(1000)
}

/// Bytes that pages take beyond their records, and how many percent of these they are.
fn waste() -> (u64, u64) {
    let (mapped, allocated) = (slab::mapped_bytes(), slab::allocated_bytes());
    let waste = mapped.saturating_sub(allocated) as u64;
    (waste, waste * 100 / (allocated as u64).max(1))
}

/// Gives empty pages back, but for some spare ones.
pub fn purge() {
    slab::purge(slab::allocated_bytes() / SPARE_SHARE / slab::PAGE_BYTES);
}

#[cfg(test)]
mod tests {
    use super::*;

    const OPTIONS: Defragmentation = Defragmentation {
        activedefrag: true,
        ignore_bytes: 1000,
        threshold_lower: 10,
        threshold_upper: 100,
        cycle_min: 1,
        cycle_max: 25,
    };

    #[test]
    fn the_share_grows_with_the_waste() {
        let share = |percent| share_of(&OPTIONS, percent);
        assert_eq!([10, 55, 100, 900].map(share), [1, 13, 25, 25]);
        let upside_down = Defragmentation { threshold_upper: 5, cycle_max: 0, ..OPTIONS };
        assert_eq!(share_of(&upside_down, 50), 1);
        assert_eq!([1, 25, 99].map(pause_ms), [50, 2, 1]);
    }

    #[test]
    fn little_waste_is_left_alone() {
        assert!(is_too_much(&OPTIONS, 2000, 11));
        assert!(!is_too_much(&OPTIONS, 2000, 10));
        assert!(!is_too_much(&OPTIONS, 1000, 50));
    }
}
