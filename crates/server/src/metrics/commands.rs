//! Metrics by command: how often, how long, how it went.

use kvasir_reactor::clock::Ticks;

use crate::metrics::collect::Sources;
use crate::metrics::page::{Family, Kind, Page, Total};
use crate::stats::histogram::Distribution;

/// Bounds of the buckets that are told of every command, in ns: powers of two from a microsecond
/// to a second.
const BOUNDS: std::ops::RangeInclusive<u32> = 10..=30;

/// What one command has done, at all workers.
struct Figures {
    name: String,
    calls: u64,
    rejected: u64,
    failed: u64,
    us: u64,
    distribution: Distribution,
}

pub fn write(sources: &Sources<'_>, page: &mut Page) {
    let all = figures(sources);
    counts(&all, page);
    latencies(sources, &all, page);
    histograms(&all, page);
}

/// Of commands that were called or refused.
fn figures(sources: &Sources<'_>) -> Vec<Figures> {
    let shared = sources.shared();
    let of_entry = |entry: &kvasir_table::Entry| {
        let sum = |figure: fn(&crate::stats::CommandStats) -> u64| -> u64 {
            shared.workers.stats().map(|stats| figure(&stats.by_command[entry.index])).sum()
        };
        let (calls, rejected) = (sum(|of| of.calls.value()), sum(|of| of.rejected.value()));
        (calls > 0 || rejected > 0).then(|| Figures {
            name: entry.full_name.to_string(),
            calls,
            rejected,
            failed: sum(|of| of.failed.value()),
            us: Ticks::from_count(sum(|of| of.ticks.value())).to_nanos() / 1000,
            distribution: shared.distribution(entry.index),
        })
    };
    shared.table.entries().iter().filter_map(of_entry).collect()
}

fn counts(all: &[Figures], page: &mut Page) {
    let mut counter = |name: &str, help: &str, value: &dyn Fn(&Figures) -> f64| {
        let mut family = Family::new(name, Kind::Counter, help);
        all.iter().for_each(|of| family.add(&[("cmd", &of.name)], value(of)));
        page.add(&family);
    };
    counter("redis_commands_total", "Calls that have run.", &|of| of.calls as f64);
    let help = "How long calls took together.";
    counter("redis_commands_duration_seconds_total", help, &|of| of.us as f64 / 1e6);
    let help = "Calls that were refused before they ran.";
    counter("redis_commands_rejected_calls_total", help, &|of| of.rejected as f64);
    let help = "Calls that have run and failed.";
    counter("redis_commands_failed_calls_total", help, &|of| of.failed as f64);
}

/// As LATENCY HISTOGRAM and INFO latencystats have them.
fn latencies(sources: &Sources<'_>, all: &[Figures], page: &mut Page) {
    let percentiles = &sources.config().latency.tracking_info_percentiles;
    let help = "How long calls took, in microseconds.";
    let mut histograms = Family::new("redis_commands_latencies_usec", Kind::Histogram, help);
    let mut summaries = Family::new("redis_latency_percentiles_usec", Kind::Summary, help);
    for of in all.iter().filter(|of| of.distribution.calls > 0) {
        let labels = [("cmd", &of.name[..])];
        let total = Total { count: of.calls, sum: of.us as f64 };
        let pairs = of.distribution.powers_of_two().into_iter();
        let buckets: Vec<_> = pairs.map(|(us, calls)| (us as f64, calls)).collect();
        let timed = Total { count: of.distribution.calls, ..total };
        histograms.add_histogram(&labels, &buckets, timed);
        let quantile = |percent: &String| {
            let nanos = of.distribution.percentile(percent.parse().unwrap_or_default());
            (percent.clone(), nanos as f64 / 1000.0)
        };
        let quantiles: Vec<_> = percentiles.iter().map(quantile).collect();
        summaries.add_summary(&labels, &quantiles, total);
    }
    page.add(&histograms);
    if sources.config().latency.tracking {
        page.add(&summaries);
    }
}

/// With the same buckets at any time, as rates of them want it.
fn histograms(all: &[Figures], page: &mut Page) {
    let help = "How long calls took, in seconds.";
    let mut family = Family::new("kvasir_command_duration_seconds", Kind::Histogram, help);
    for of in all.iter().filter(|of| of.distribution.calls > 0) {
        let total = Total { count: of.distribution.calls, sum: of.us as f64 / 1e6 };
        family.add_histogram(&[("cmd", &of.name)], &seconds(&of.distribution), total);
    }
    page.add(&family);
}

/// Buckets of times in seconds.
pub fn seconds(distribution: &Distribution) -> Vec<(f64, u64)> {
    let bounds: Vec<u64> = BOUNDS.map(|power| 1 << power).collect();
    let counts = distribution.within(&bounds);
    bounds.iter().zip(counts).map(|(bound, count)| (*bound as f64 / 1e9, count)).collect()
}
