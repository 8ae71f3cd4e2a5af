//! The links of replicas that a worker has.

/// The links of a worker.
#[derive(Default)]
pub struct Links {
    /// The connections.
    pub indices: Vec<usize>,
    pub next_look_ms: u64,
    /// Calls wait for what replicas acknowledge.
    pub asks_acks: bool,
}

impl Links {
    pub fn add(&mut self, index: usize) {
        self.indices.push(index);
    }

    pub fn remove(&mut self, index: usize) {
        self.indices.retain(|link| *link != index);
    }

    /// When to look at them by the clock.
    pub fn next_look_ms(&self) -> Option<u64> {
        (!self.indices.is_empty()).then_some(self.next_look_ms)
    }
}
