//! Ends that the kernel keeps to itself. A multishot receive may miss that a peer has reset its
//! connection right behind its data (github.com/axboe/liburing/issues/1549 tells how; Linux 7.0
//! mended most of it, yet 6.18.44, which has that, loses a few of 100,000). Nothing more comes from
//! that peer, so no later event would tell. Hence a connection that falls silent is looked at
//! once; if there is something to receive, its receive is started anew and finds it.
//!
//! One look for each time a connection falls silent: a busy one costs a flag, an idle one nothing.

use std::time::Duration;

use rustix::event::{PollFd, PollFlags};
use rustix::time::{ClockId, Timespec, clock_gettime};

use super::{Flags, Uring};
use crate::ConnectionId;

/// Who has received nothing for one to two of these has fallen silent.
const TICK_MS: u64 = 100;
/// Connections looked at in one turn, all by one system call.
const LOOKS_MAX: usize = 256;

#[derive(Default)]
pub(super) struct Silence {
    /// Have received something at this tick or the one before.
    heard: Vec<ConnectionId>,
    /// To be looked at.
    silent: Vec<ConnectionId>,
    next_tick_ms: u64,
}

impl Silence {
    /// `timeout`, or less if there is something to do before.
    pub(super) fn limit(&self, timeout: Option<Duration>) -> Option<Duration> {
        let rest = match (self.silent.is_empty(), self.heard.is_empty()) {
            (false, _) => Duration::ZERO,
            (true, false) => Duration::from_millis(self.next_tick_ms.saturating_sub(now_ms())),
            (true, true) => return timeout,
        };
        Some(timeout.map_or(rest, |timeout| timeout.min(rest)))
    }
}

impl Uring {
    /// The connection is heard of, or expects to be.
    pub(super) fn hear(&mut self, id: ConnectionId) {
        let connection = self.connection(id);
        let is_known = connection.flags.contains(Flags::WATCHED);
        connection.flags.insert(Flags::HEARD | Flags::WATCHED);
        if !is_known {
            self.silence.heard.push(id);
        }
    }

    pub(super) fn watch_silence(&mut self) {
        if !self.silence.heard.is_empty() && self.silence.next_tick_ms <= now_ms() {
            self.tick();
        }
        if !self.silence.silent.is_empty() {
            self.look_at_silent();
        }
    }

    fn tick(&mut self) {
        let now_ms = now_ms();
        self.silence.next_tick_ms = now_ms + TICK_MS;
        for id in std::mem::take(&mut self.silence.heard) {
            let Some(connection) = self.open(id) else { continue };
            if connection.flags.contains(Flags::HEARD) {
                connection.flags.remove(Flags::HEARD);
                self.silence.heard.push(id);
            } else {
                self.silence.silent.push(id);
            }
        }
    }

    /// Where there is something that the receive did not find, or will find this very moment, it
    /// is cancelled, and started again by its last completion.
    fn look_at_silent(&mut self) {
        let rest = self.silence.silent.len().saturating_sub(LOOKS_MAX);
        let mut ids = self.silence.silent.split_off(rest);
        ids.retain(|&id| self.is_silent(id));
        let connections = ids.iter().map(|id| self.connections.get(id.index, id.generation));
        let descriptors = connections.map(|connection| &connection.expect("it is open").fd);
        let mut looks: Vec<_> = descriptors.map(|fd| PollFd::new(fd, events())).collect();
        if rustix::event::poll(&mut looks, Some(&Timespec::default())).is_err() {
            // Short of memory for a moment: another look later.
            return ids.into_iter().for_each(|id| self.hear(id));
        }
        let found: Vec<bool> = looks.iter().map(|look| !look.revents().is_empty()).collect();
        for (id, _) in ids.into_iter().zip(found).filter(|&(_, found)| found) {
            self.cancel_receive(id);
        }
    }

    /// Whether it still is; if not, it is watched again or has gone.
    fn is_silent(&mut self, id: ConnectionId) -> bool {
        let Some(connection) = self.open(id) else { return false };
        if connection.flags.contains(Flags::HEARD) {
            self.silence.heard.push(id);
            return false;
        }
        connection.flags.remove(Flags::WATCHED);
        true
    }
}

fn events() -> PollFlags {
    PollFlags::IN | PollFlags::RDHUP
}

/// Exact to a few milliseconds, and read without a look at the hardware.
fn now_ms() -> u64 {
    let now = clock_gettime(ClockId::MonotonicCoarse);
    now.tv_sec as u64 * 1000 + now.tv_nsec as u64 / 1_000_000
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::UnixStream;

    use super::*;
    use crate::{Options, Socket};

    /// A ring with connections, and their other ends; None where io_uring is not allowed.
    fn uring(count: usize) -> Option<(Uring, Vec<ConnectionId>, Vec<UnixStream>)> {
        let mut uring = Uring::new(&Options::default()).ok()?;
        let pairs = (0..count).map(|_| UnixStream::pair().expect("a pair of sockets"));
        let (servers, clients): (Vec<_>, Vec<_>) = pairs.unzip();
        let sockets = servers.into_iter().map(|end| Socket::accepted(end.into(), true, false));
        let ids = sockets.map(|socket| uring.register(socket)).collect();
        Some((uring, ids, clients))
    }

    #[test]
    fn who_is_gone_is_watched_no_longer() {
        let Some((mut uring, ids, _clients)) = uring(8) else { return };
        ids[..5].iter().for_each(|&id| uring.close(id));
        ids[5..].iter().for_each(|&id| uring.hear(id));
        uring.tick();
        assert_eq!(uring.silence.heard.len(), 3);
    }
}
