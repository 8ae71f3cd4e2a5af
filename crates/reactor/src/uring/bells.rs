//! Bells of rings: each has a poll that reports every edge, as the waker has.

use std::io;
use std::os::fd::{AsRawFd, OwnedFd};

use io_uring::types::Fd;
use io_uring::{cqueue, opcode};

use super::{Flags, Uring};
use crate::token::{Kind, Token};
use crate::{ConnectionId, Event};

impl Uring {
    /// Notes from now on when the bell of a connection is rung, until that is closed.
    pub(crate) fn watch_bell(&mut self, id: ConnectionId, bell: OwnedFd) {
        if self.open(id).is_some() {
            self.bells.insert(id.index, bell);
            self.arm_bell(id);
        }
    }

    fn arm_bell(&mut self, id: ConnectionId) {
        self.connection(id).flags.insert(Flags::HAS_BELL);
        let fd = Fd(self.bells[&id.index].as_raw_fd());
        let entry = opcode::PollAdd::new(fd, libc::POLLIN as u32).multi(true).build();
        let token = Token::new(Kind::Bell, id.index, id.generation);
        // SAFETY: the descriptor stays open while `HAS_BELL` is set: see `release_if_done`.
        unsafe { self.ring.push(entry.user_data(token.to_u64())) };
    }

    /// Connections whose bells were rung.
    pub(crate) fn take_rung(&mut self) -> Vec<ConnectionId> {
        std::mem::take(&mut self.rung)
    }

    /// Whether there is nothing to do, as far as that can be told without a system call.
    pub(crate) fn is_quiet(&mut self) -> bool {
        self.ready.is_empty()
            && self.starved.is_empty()
            && self.acceptable.is_empty()
            && self.ring.is_quiet()
    }

    pub(super) fn on_bell(&mut self, id: ConnectionId, completion: &cqueue::Entry) {
        let connection = self.connection(id);
        if !cqueue::more(completion.flags()) {
            connection.flags.remove(Flags::HAS_BELL);
        }
        let flags = connection.flags;
        if flags.contains(Flags::CLOSING) {
            return self.release_if_done(id);
        }
        if completion.result() < 0 {
            // It would never be heard again.
            let error = Some(io::Error::from_raw_os_error(-completion.result()));
            return self.ready.push(Event::Closed { connection: id, error });
        }
        self.rung.push(id);
        if !flags.contains(Flags::HAS_BELL) {
            self.arm_bell(id);
        }
    }
}
