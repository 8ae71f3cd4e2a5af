//! Latencies of a command, counted so that percentiles are right to two digits.
//!
//! Log-linear, as HdrHistogram with two significant digits, whose figures Redis reports: each
//! doubling of the latency is divided into 128 steps. A doubling's counters are allocated when the
//! first latency falls into it, 1 KiB at a time; most commands need a handful.
//!
//! ```text
//! value (ns)        0..255   256..511   512..1023   ...   2^29..2^30-1
//! width of a step        1          2           4   ...        2^22
//! ```

use std::sync::OnceLock;

use crate::stats::Counter;

/// Steps of the first range, in which each value has its own; the others have half of them.
const STEPS: u64 = 256;
/// Doublings behind the first range, up to a second.
const DOUBLINGS: usize = 22;
/// Longer latencies are counted as this one.
const NANOS_MAX: u64 = 1_000_000_000;
/// Where LATENCY HISTOGRAM's powers of two begin.
const FIRST_LEVEL_NANOS: u64 = 1024;

type Steps = Box<[Counter]>;

/// Written by one worker, read by all.
pub struct Histogram {
    ranges: [OnceLock<Steps>; DOUBLINGS + 1],
}

impl Default for Histogram {
    fn default() -> Histogram {
        Histogram { ranges: [const { OnceLock::new() }; DOUBLINGS + 1] }
    }
}

impl Histogram {
    /// Counts `calls` calls that took so long each.
    #[inline]
    pub fn add(&self, nanos: u64, calls: u64) {
        let (range, step) = place(nanos.clamp(1, NANOS_MAX));
        let steps = self.ranges[range].get_or_init(|| new_steps(range));
        steps[step].add(calls);
    }

    pub fn reset(&self) {
        self.ranges.iter().filter_map(OnceLock::get).flatten().for_each(Counter::reset);
    }
}

fn new_steps(range: usize) -> Steps {
    let count = if range == 0 { STEPS } else { STEPS / 2 };
    (0..count).map(|_| Counter::default()).collect()
}

/// The range of a latency, and its step there.
#[inline]
fn place(nanos: u64) -> (usize, usize) {
    match nanos.checked_ilog2() {
        None | Some(0..8) => (0, nanos as usize),
        Some(log) => ((log - 7) as usize, (nanos >> (log - 7)) as usize - STEPS as usize / 2),
    }
}

/// The least latency that is counted in a step, and the longest.
fn bounds(range: usize, step: usize) -> (u64, u64) {
    if range == 0 {
        return (step as u64, step as u64);
    }
    let least = (step as u64 + STEPS / 2) << range;
    (least, least + (1 << range) - 1)
}

/// Histograms of several workers, added up: what percentiles and distributions are read from.
#[derive(Default)]
pub struct Distribution {
    /// Least and longest latency of a step in ns, and calls; in order, without empty steps.
    steps: Vec<(u64, u64, u64)>,
    pub calls: u64,
}

impl Distribution {
    pub fn of<'h>(histograms: impl Iterator<Item = &'h Histogram> + Clone) -> Distribution {
        let mut all = Distribution::default();
        for range in 0..=DOUBLINGS {
            let used = histograms.clone().filter_map(|histogram| histogram.ranges[range].get());
            let mut used = used.peekable();
            if used.peek().is_none() {
                continue;
            }
            let mut sums = vec![0; STEPS as usize];
            for steps in used {
                steps.iter().zip(&mut sums).for_each(|(step, sum)| *sum += step.value());
            }
            for (step, calls) in sums.into_iter().enumerate().filter(|(_, calls)| *calls > 0) {
                let (least, longest) = bounds(range, step);
                all.steps.push((least, longest, calls));
                all.calls += calls;
            }
        }
        all
    }

    /// The latency in ns that so many percent of the calls did not exceed.
    pub fn percentile(&self, percent: f64) -> u64 {
        let wanted = (percent.clamp(0.0, 100.0) / 100.0 * self.calls as f64 + 0.5) as u64;
        let mut seen = 0;
        for (least, longest, calls) in &self.steps {
            seen += calls;
            if seen >= wanted.max(1) {
                return if percent == 0.0 { *least } else { *longest };
            }
        }
        0
    }

    /// How many were not above these bounds, each a power of two, in order.
    pub fn within(&self, bounds: &[u64]) -> Vec<u64> {
        let count = |bound: &u64| {
            let within = self.steps.iter().filter(|(_, longest, _)| longest <= bound);
            within.map(|(.., calls)| calls).sum()
        };
        bounds.iter().map(count).collect()
    }

    /// Pairs of a latency in us and the calls that took no longer; each doubles the one before,
    /// and only those are told that add calls.
    pub fn powers_of_two(&self) -> Vec<(u64, u64)> {
        let (mut pairs, mut told) = (Vec::new(), 0);
        let mut level = FIRST_LEVEL_NANOS;
        while told < self.calls {
            let (range, step) = place(level);
            let (_, longest) = bounds(range, step);
            let within = self.steps.iter().filter(|(least, ..)| *least <= longest);
            let calls = within.map(|(.., calls)| calls).sum();
            if calls > told {
                pairs.push((longest / 1000, calls));
                told = calls;
            }
            level *= 2;
        }
        pairs
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn figures_are_those_of_redis() {
        let histogram = Histogram::default();
        [3_000, 4_000, 163_000].into_iter().for_each(|nanos| histogram.add(nanos, 1));
        let all = Distribution::of([&histogram].into_iter());
        assert_eq!(all.percentile(0.0), 2_992);
        assert_eq!(all.percentile(33.3), 3_007);
        assert_eq!(all.percentile(50.0), 4_015);
        assert_eq!(all.percentile(99.9), 163_839);
        assert_eq!(all.powers_of_two(), [(4, 2), (264, 3)]);
    }

    #[test]
    fn long_latencies_end_the_scale() {
        let histogram = Histogram::default();
        histogram.add(u64::MAX, 2);
        let all = Distribution::of([&histogram, &histogram].into_iter());
        assert_eq!(all.calls, 4);
        assert_eq!(all.percentile(50.0), 1_002_438_655);
        assert_eq!(all.powers_of_two(), [(1_082_130, 4)]);
        histogram.reset();
        assert_eq!(Distribution::of([&histogram].into_iter()).powers_of_two(), []);
    }

    proptest! {
        #[test]
        fn every_latency_lies_in_its_step(nanos in 1..=NANOS_MAX) {
            let (range, step) = place(nanos);
            let (least, longest) = bounds(range, step);
            prop_assert!((least..=longest).contains(&nanos));
            prop_assert!((longest - least) * 100 <= nanos);
        }
    }
}
