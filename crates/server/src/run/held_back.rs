//! Connections whose replies wait for the disk or for replicas, by their worker: a queue.

use std::collections::VecDeque;
use std::sync::atomic::Ordering::Relaxed;

use kvasir_reactor::ConnectionId;

use crate::store::replication::Replication;

/// Connections whose replies wait for the disk, longest waiting first.
#[derive(Default)]
pub struct HeldBack {
    /// With what they waited for when they came here; it may be more by now.
    pub connections: Vec<(u64, usize)>,
    /// Whether some may be left who can be answered.
    pub is_behind: bool,
    /// How far all was when they were last looked at.
    pub seen: [u64; 3],
    /// How often the server had become a replica when its worker last heard of that.
    pub demotions: u64,
    /// Clients that have ended their stream meanwhile, and when each is closed, in ms since 1970.
    gone: VecDeque<(u64, ConnectionId)>,
}

/// Who has closed its half may still read, if only the disk or a replica takes a moment. Nobody can
/// tell it from one that has gone altogether, of whom nothing is to be kept.
const GONE_MS: u64 = 250;

/// Something has changed for all of them.
pub const NEVER_SEEN: [u64; 3] = [u64::MAX; 3];

impl HeldBack {
    pub fn new(replication: &Replication) -> HeldBack {
        HeldBack { demotions: replication.demotions.load(Relaxed), ..HeldBack::default() }
    }

    /// A connection closes, or need not wait any more.
    pub fn forget(&mut self, index: usize) {
        if let Some(at) = self.connections.iter().position(|(_, held)| *held == index) {
            self.connections.remove(at);
        }
    }

    /// A client has ended its stream, whose replies wait.
    pub fn note_gone(&mut self, id: ConnectionId, now_ms: u64) {
        self.gone.push_back((now_ms + GONE_MS, id));
    }

    /// When the next of them is closed, in ms since 1970.
    pub fn next_gone_ms(&self) -> Option<u64> {
        self.gone.front().map(|(due_ms, _)| *due_ms)
    }

    /// The next one whose time is over.
    pub fn take_gone(&mut self, now_ms: u64) -> Option<ConnectionId> {
        self.next_gone_ms().filter(|due_ms| *due_ms <= now_ms)?;
        self.gone.pop_front().map(|(_, id)| id)
    }

    /// Takes so many, of those who may have come to their end.
    pub fn take_due(&mut self, durable: u64, max: usize) -> Vec<usize> {
        let mut due = Vec::new();
        self.connections.retain(|&(fence, index)| {
            let is_due = fence <= durable && due.len() < max;
            if is_due {
                due.push(index);
            }
            !is_due
        });
        self.is_behind = due.len() == max;
        due
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn some_of_those_are_taken_who_waited_longest_for_what_is_on_disk() {
        let connections = vec![(5, 0), (9, 1), (7, 2), (8, 3), (10, 4)];
        let mut held_back = HeldBack { connections, ..HeldBack::default() };
        assert_eq!(held_back.take_due(8, 2), [0, 2]);
        assert!(held_back.is_behind);
        assert_eq!(held_back.take_due(8, 2), [3]);
        assert!(!held_back.is_behind);
        assert_eq!(held_back.take_due(u64::MAX, usize::MAX), [1, 4]);
        assert!(!held_back.is_behind && held_back.connections.is_empty());
    }
}
