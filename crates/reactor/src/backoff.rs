//! Listeners that rest because the process or the system is out of descriptors. Accepting again
//! at once would fail again at once, and the worker would spin.

use std::time::{Duration, Instant};

use crate::ListenerId;

/// Long enough to cost nothing, short enough that no client notices.
const REST: Duration = Duration::from_millis(100);

#[derive(Default)]
pub(crate) struct Backoff {
    /// In the order of their deadlines, since all rest equally long.
    resting: Vec<(Instant, ListenerId)>,
}

impl Backoff {
    pub(crate) fn rest(&mut self, listener: ListenerId) {
        self.resting.push((Instant::now() + REST, listener));
    }

    pub(crate) fn forget(&mut self, listener: ListenerId) {
        self.resting.retain(|&(_, resting)| resting != listener);
    }

    /// The listeners that have rested long enough.
    pub(crate) fn take_due(&mut self) -> Vec<ListenerId> {
        if self.resting.is_empty() {
            return Vec::new();
        }
        let now = Instant::now();
        let due = self.resting.partition_point(|&(deadline, _)| deadline <= now);
        self.resting.drain(..due).map(|(_, listener)| listener).collect()
    }

    /// `timeout`, or less if a listener has to be woken before.
    pub(crate) fn limit(&self, timeout: Option<Duration>) -> Option<Duration> {
        let Some(&(deadline, _)) = self.resting.first() else { return timeout };
        let rest = deadline.saturating_duration_since(Instant::now());
        Some(timeout.map_or(rest, |timeout| timeout.min(rest)))
    }
}
