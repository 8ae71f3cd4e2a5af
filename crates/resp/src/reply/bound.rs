//! The bound of a reply: how long it may get, and what becomes of what is beyond it.

use std::ops::ControlFlow;

use super::{HEADER_MAX, Reply};

/// A buffer with a bound doubles up to here, and then only up to the bound.
const DOUBLED_MAX: usize = 128 * 1024;

impl Reply {
    /// Has the reply get no longer than so many bytes, shared chunks included; `usize::MAX`: as
    /// long as it likes. It counts as whole again.
    pub fn set_bound(&mut self, bound: usize) {
        self.bound = bound.max(1);
        self.end = self.bound;
    }

    pub fn bound(&self) -> usize {
        self.bound
    }

    #[inline]
    pub fn is_bounded(&self) -> bool {
        self.bound != usize::MAX
    }

    /// Whether something was thrown away: what is here is no reply, and gets no longer.
    #[inline]
    pub fn is_cut(&self) -> bool {
        self.end == 0
    }

    /// Whether who writes goes on: not if the reply is cut.
    #[inline]
    pub fn flow(&self) -> ControlFlow<()> {
        if self.is_cut() { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    }

    /// Throws away what would follow.
    #[cold]
    pub fn cut(&mut self) {
        self.end = 0;
    }

    /// Whether so many bytes more are taken; there is memory for them then.
    #[inline]
    pub(super) fn takes(&mut self, more: usize) -> bool {
        let len = self.bytes.len() + more;
        (len <= self.bytes.capacity() && len + self.chunks_len <= self.end) || self.grow(more)
    }

    /// Whether a string of so many bytes has room, before it is made; the reply is cut if not.
    pub fn has_room_for(&mut self, more: usize) -> bool {
        if self.end.saturating_sub(self.len()) < more.saturating_add(HEADER_MAX) {
            self.cut();
        }
        !self.is_cut()
    }

    /// As `takes`, of a shared chunk and the lines around it.
    pub(super) fn takes_shared(&mut self, more: usize) -> bool {
        self.has_room_for(more) && self.takes(HEADER_MAX)
    }

    #[cold]
    #[inline(never)]
    fn grow(&mut self, more: usize) -> bool {
        let room = self.end.saturating_sub(self.len());
        if more > room {
            self.cut();
            return false;
        }
        let capacity = self.bytes.capacity();
        if self.is_bounded() && capacity >= DOUBLED_MAX {
            // Twice as much may be more than can ever be filled.
            self.bytes.reserve_exact(capacity.clamp(more, room));
        } else {
            self.bytes.reserve(more);
        }
        true
    }
}
