//! The latency monitor: the worst moments of the last hours, by event.
//!
//! An event (`command`, `expire-cycle`) that takes at least `latency-monitor-threshold` leaves a
//! sample: the second and the milliseconds. Of several in one second the longest is kept, of all
//! the newest 160. What a healthy server does leaves none, so one lock for all is enough.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Mutex;

use kvasir_structures::locks::lock;

/// Samples kept of each event.
const SAMPLES_MAX: usize = 160;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sample {
    /// Seconds since 1970.
    pub time_s: u64,
    pub latency_ms: u64,
}

/// What is known of one event.
#[derive(Clone, Debug, Default)]
pub struct Series {
    /// Oldest first; none is empty.
    pub samples: VecDeque<Sample>,
    /// Of all time.
    pub latency_ms_max: u64,
    pub latency_ms_sum: u64,
    pub count: u64,
}

/// All events that were ever slow.
#[derive(Default)]
pub struct Latencies(Mutex<BTreeMap<&'static str, Series>>);

impl Latencies {
    pub fn add(&self, event: &'static str, time_s: u64, latency_ms: u64) {
        lock(&self.0).entry(event).or_default().add(Sample { time_s, latency_ms });
    }

    /// A copy of what is known, by event.
    pub fn all(&self) -> Vec<(&'static str, Series)> {
        lock(&self.0).iter().map(|(event, series)| (*event, series.clone())).collect()
    }

    pub fn of(&self, event: &[u8]) -> Option<(&'static str, Series)> {
        let series = lock(&self.0);
        let found = series.iter().find(|(name, _)| name.as_bytes().eq_ignore_ascii_case(event));
        found.map(|(event, series)| (*event, series.clone()))
    }

    /// Forgets these events, or all; says how many there were.
    pub fn reset(&self, events: Option<&[&[u8]]>) -> usize {
        let mut series = lock(&self.0);
        let before = series.len();
        let is_named = |name: &str| match events {
            None => true,
            Some(events) => events.iter().any(|event| name.as_bytes().eq_ignore_ascii_case(event)),
        };
        series.retain(|name, _| !is_named(name));
        before - series.len()
    }
}

impl Series {
    fn add(&mut self, sample: Sample) {
        self.latency_ms_max = self.latency_ms_max.max(sample.latency_ms);
        self.latency_ms_sum += sample.latency_ms;
        self.count += 1;
        match self.samples.back_mut().filter(|last| last.time_s == sample.time_s) {
            Some(last) => last.latency_ms = last.latency_ms.max(sample.latency_ms),
            None => self.samples.push_back(sample),
        }
        if self.samples.len() > SAMPLES_MAX {
            self.samples.pop_front();
        }
    }

    /// The samples as a picture: see `graph`.
    pub fn graph(&self, event: &str, now_s: u64) -> String {
        let latencies = || self.samples.iter().map(|sample| sample.latency_ms);
        let (high, low) = (latencies().max().unwrap_or(0), latencies().min().unwrap_or(0));
        let all_time = self.latency_ms_max;
        let head =
            format!("{event} - high {high} ms, low {low} ms (all time high {all_time} ms)\n");
        let columns: Vec<(u64, String)> = self
            .samples
            .iter()
            .map(|sample| (sample.latency_ms, age(now_s.saturating_sub(sample.time_s))))
            .collect();
        format!("{head}{}\n{}", "-".repeat(80), graph(&columns))
    }
}

/// As short as it gets: `5s`, `3m`, `2h`, `1d`.
fn age(seconds: u64) -> String {
    match seconds {
        0..60 => format!("{seconds}s"),
        60..3600 => format!("{}m", seconds / 60),
        3600..86_400 => format!("{}h", seconds / 3600),
        _ => format!("{}d", seconds / 86_400),
    }
}

/// Lines of a graph.
const ROWS: usize = 4;
/// From the foot of a line to its top.
const DOTS: [char; 3] = ['_', 'o', '#'];

/// Columns of four lines, filled up to their value, with labels written downwards below a gap.
fn graph(columns: &[(u64, String)]) -> String {
    let values = || columns.iter().map(|(value, _)| *value);
    let (low, high) = (values().min().unwrap_or(0), values().max().unwrap_or(0));
    let steps = (ROWS * DOTS.len()) as u64;
    let height = |value: u64| ((value - low) * steps / (high - low).max(1)).min(steps - 1) as usize;
    let dot = |value: u64, row: usize| match height(value).checked_sub(row * DOTS.len()) {
        None => ' ',
        Some(step) => DOTS.get(step).copied().unwrap_or('|'),
    };
    let line = |row: usize| columns.iter().map(|(value, _)| dot(*value, row)).collect::<String>();
    let label_rows = columns.iter().map(|(_, label)| label.len()).max().unwrap_or(0);
    let letter = |label: &str, row: usize| label.chars().nth(row).unwrap_or(' ');
    let label = |row: usize| columns.iter().map(|(_, label)| letter(label, row)).collect();
    let lines = (0..ROWS).rev().map(line).chain([" ".repeat(columns.len())]);
    let all: Vec<String> = lines.chain((0..label_rows).map(label)).collect();
    all.join("\n") + "\n"
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_sample_a_second_and_160_in_all() {
        let latencies = Latencies::default();
        for (time_s, latency_ms) in [(1, 5), (1, 9), (1, 7), (2, 3)] {
            latencies.add("command", time_s, latency_ms);
        }
        let (_, series) = latencies.of(b"COMMAND").unwrap();
        let samples: Vec<_> =
            series.samples.iter().map(|sample| (sample.time_s, sample.latency_ms)).collect();
        assert_eq!(samples, [(1, 9), (2, 3)]);
        assert_eq!((series.latency_ms_max, series.latency_ms_sum, series.count), (9, 24, 4));
        (3..300).for_each(|time_s| latencies.add("command", time_s, 1));
        assert_eq!(latencies.of(b"command").unwrap().1.samples.len(), SAMPLES_MAX);
        latencies.add("expire-cycle", 1, 1);
        assert_eq!(latencies.reset(Some(&[b"nosuch", b"Command"])), 1);
        assert_eq!(latencies.reset(None), 1);
    }

    #[test]
    fn graphs() {
        let columns = [(10, "5s"), (21, "3s"), (15, "0s")].map(|(v, l)| (v, l.to_string()));
        assert_eq!(graph(&columns), " # \n | \n |#\n_||\n   \n530\nsss\n");
    }
}
