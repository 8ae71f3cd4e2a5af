//! Whether turns wait a moment for more clients (`ring.rs` tells what for), and how long: tried
//! out, from tick to tick of `silence.rs`.
//!
//! Clients that are kept busy by what they are answered don't notice that a turn waits, and come
//! in groups: fewer sleeps serve them. Others have nothing to do but to wait for us, a network away
//! perhaps: then they get less done, and the timer costs as much as the sleeps that it saves. No
//! figure that a server knows tells the ones from the others, or what a sleep costs on this
//! machine. So it is tried, tick by tick in turn, and kept up for a while if that was cheaper.

use rustix::time::{ClockId, clock_gettime};

use super::Uring;
use super::ring::Hope;

/// Ticks of one trial, half of them with waiting.
const TRIED: u32 = 6;
/// Ticks until the next one, where turns don't wait and where they do. A trial's ticks with waiting
/// are to be less than one in a hundred where nobody gains from them.
const KEPT: [u32; 2] = [600, 40];
/// There is another load when that many times as much or as little is received.
const OTHER: f64 = 2.0;
/// What a tick must have received to count: below, there is nothing to save.
const RECEIVED_MIN: u64 = 500;

/// Waiting must save so much of the processor's time per request...
const COST_MAX: f64 = 0.95;
/// ... and hold nobody up: what counts as the same, since two ticks are never alike.
const RATE_MIN: f64 = 0.97;

/// Bounds of how long a turn waits.
const PATIENCE_US: (u32, u32) = (50, 200);
/// Connections that take longer from one request to the next did not ask at once when they were
/// answered: to wait for them longer would only make the first of them wait.
const QUICK_US: u64 = 1000;

/// What was done in some ticks.
#[derive(Clone, Copy, Default)]
struct Work {
    received: u64,
    passed_us: u64,
    cpu_us: u64,
}

#[derive(Default)]
pub(super) struct Trial {
    /// Since the last tick, which was then.
    pub(super) received: u64,
    at_ms: u64,
    at_cpu_us: u64,
    /// Ticks until this trial is over, or the next one begins, where it is decided.
    ticks_left: u32,
    is_decided: bool,
    /// Work without waiting, and with it.
    work: [Work; 2],
    /// How long turns wait for clients that may ask again, if they do.
    patience_us: Option<u32>,
}

impl Trial {
    pub(super) fn new() -> Trial {
        Trial { ticks_left: TRIED, ..Trial::default() }
    }

    /// Something was received.
    pub(super) fn count(&mut self) {
        self.received += 1;
    }

    /// A tick, up to which so many connections were busy.
    pub(super) fn tick(&mut self, now_ms: u64, busy: usize) {
        let cpu_us = thread_cpu_us();
        let done = Work {
            received: std::mem::take(&mut self.received),
            passed_us: now_ms.saturating_sub(self.at_ms) * 1000,
            cpu_us: cpu_us.saturating_sub(self.at_cpu_us),
        };
        (self.at_ms, self.at_cpu_us) = (now_ms, cpu_us);
        self.take(done, busy);
    }

    fn take(&mut self, done: Work, busy: usize) {
        let waited = self.patience_us.is_some();
        if done.received < RECEIVED_MIN {
            return self.begin();
        }
        let work = &mut self.work[usize::from(waited)];
        self.ticks_left -= 1;
        let waits = if self.is_decided {
            if self.ticks_left == 0 || done.is_other_than(*work) {
                return self.begin();
            }
            waited
        } else {
            work.add(done);
            if self.ticks_left > 0 { !waited } else { self.decide() }
        };
        self.patience_us = waits.then(|| patience_us(done.cycle_us(busy)));
    }

    /// Whether turns wait from now on.
    fn decide(&mut self) -> bool {
        let waits = self.work[1].is_better_than(self.work[0]);
        (self.ticks_left, self.is_decided) = (KEPT[usize::from(waits)], true);
        waits
    }

    /// The next tick is the first of a trial, and one without waiting.
    fn begin(&mut self) {
        let Trial { at_ms, at_cpu_us, .. } = *self;
        *self = Trial { at_ms, at_cpu_us, ..Trial::new() };
    }
}

impl Uring {
    /// What the next turn waits for beside the first that comes.
    pub(super) fn hope(&self) -> Hope {
        match self.trial.patience_us {
            Some(patience_us) => Hope { expected: self.expected(), patience_us },
            None => Hope::NONE,
        }
    }

    /// How many clients may ask again within a moment: those who are awaited. Fewer where few are
    /// busy: to wait for a large part of them would be to wait for the slowest, turn by turn, while
    /// nobody works. Who only sends or only hears does not count; nor does, among the busy, who has
    /// gone.
    pub(super) fn expected(&self) -> usize {
        const PART: usize = 4;
        if self.hurries {
            return 0;
        }
        self.awaited.min(self.silence.heard_count() / PART)
    }
}

impl Work {
    fn add(&mut self, other: Work) {
        self.received += other.received;
        self.passed_us += other.passed_us;
        self.cpu_us += other.cpu_us;
    }

    fn is_better_than(self, other: Work) -> bool {
        let cost = |work: Work| work.cpu_us as f64 / work.received.max(1) as f64;
        cost(self) <= COST_MAX * cost(other) && self.rate() >= RATE_MIN * other.rate()
    }

    fn is_other_than(self, other: Work) -> bool {
        let to_other = self.rate() / other.rate();
        !(1.0 / OTHER..OTHER).contains(&to_other)
    }

    fn rate(self) -> f64 {
        self.received as f64 / self.passed_us.max(1) as f64
    }

    /// From one request of a connection to its next.
    fn cycle_us(self, busy: usize) -> u64 {
        self.passed_us.saturating_mul(busy as u64) / self.received.max(1)
    }
}

/// Half a cycle: by then as many have come back as are waited for, unless they are late.
fn patience_us(cycle_us: u64) -> u32 {
    let (shortest, longest) = PATIENCE_US;
    if cycle_us > QUICK_US { shortest } else { (cycle_us as u32 / 2).clamp(shortest, longest) }
}

fn thread_cpu_us() -> u64 {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    time.tv_sec as u64 * 1_000_000 + time.tv_nsec as u64 / 1000
}

#[cfg(test)]
mod tests {
    use super::*;

    const TICK: Work = Work { received: 10_000, passed_us: 100_000, cpu_us: 70_000 };

    /// A trial to its end, with work of ticks that wait in proportion to those that don't.
    fn tried(received: f64, cpu: f64) -> Trial {
        let mut trial = Trial::new();
        for tick in 0..TRIED {
            assert_eq!(trial.patience_us.is_some(), tick % 2 == 1);
            let [received, cpu] = if tick % 2 == 1 { [received, cpu] } else { [1.0, 1.0] };
            let scaled = |count: u64, by: f64| (count as f64 * by) as u64;
            trial.take(
                Work {
                    received: scaled(TICK.received, received),
                    cpu_us: scaled(TICK.cpu_us, cpu),
                    ..TICK
                },
                50,
            );
        }
        trial
    }

    #[test]
    fn waiting_is_kept_up_where_it_is_cheaper_and_holds_nobody_up() {
        assert!(tried(1.0, 0.9).patience_us.is_some());
        assert!(tried(1.1, 1.0).patience_us.is_some());
        assert!(tried(1.0, 1.0).patience_us.is_none());
        assert!(tried(0.9, 0.8).patience_us.is_none());
    }

    #[test]
    fn it_is_tried_again_after_a_while() {
        for (cpu, kept) in [(1.0, KEPT[0]), (0.8, KEPT[1])] {
            let mut trial = tried(1.0, cpu);
            let waits = trial.patience_us.is_some();
            for _ in 1..kept {
                trial.take(TICK, 50);
                assert!(trial.is_decided && trial.patience_us.is_some() == waits);
            }
            trial.take(TICK, 50);
            assert!(!trial.is_decided && trial.patience_us.is_none());
        }
    }

    #[test]
    fn it_is_tried_again_when_the_load_is_another() {
        for received in [10, TICK.received / 3, TICK.received * 3] {
            let mut trial = tried(1.0, 0.8);
            trial.take(Work { received, ..TICK }, 50);
            assert!(!trial.is_decided && trial.patience_us.is_none());
            assert_eq!(trial.ticks_left, TRIED);
        }
    }

    #[test]
    fn a_turn_waits_for_half_a_cycle_within_bounds() {
        let cycle = |received| Work { received, ..TICK }.cycle_us(50);
        let patience = [100_000, 20_000, 8000, 4000].map(|received| patience_us(cycle(received)));
        assert_eq!(patience, [50, 125, 200, 50]);
    }
}
