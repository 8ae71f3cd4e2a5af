//! What a ring keeps of a connection and of a listener.

use std::os::fd::OwnedFd;

use bitflags::bitflags;

use super::outgoing::Outgoing;

bitflags! {
    #[derive(Clone, Copy)]
    pub(super) struct Flags: u16 {
        /// The kernel has a receive of this connection.
        const RECEIVING = 1 << 0;
        /// The kernel has a send of this connection.
        const SENDING = 1 << 1;
        /// The receive is being cancelled.
        const CANCELLING = 1 << 2;
        const PAUSED = 1 << 3;
        /// In the queue of those that found no buffer.
        const STARVED = 1 << 4;
        /// `Closed` has been reported.
        const ENDED = 1 << 5;
        /// The owner has closed it; nothing is reported any more.
        const CLOSING = 1 << 6;
        /// The send reports only failure: without one it is over when its turn's system call is.
        const QUIET = 1 << 7;
        /// Something was received since the last tick of `silence`.
        const HEARD = 1 << 8;
        /// `silence` knows it.
        const WATCHED = 1 << 9;
        /// The kernel has a poll of this connection, which is not there yet.
        const CONNECTING = 1 << 10;
        /// The kernel has a poll of the bell of this connection's ring.
        const HAS_BELL = 1 << 11;
    }
}

/// All that an idle connection costs: 16 bytes, and 8 for its slot.
pub(super) struct Connection {
    pub fd: OwnedFd,
    pub flags: Flags,
    pub outgoing: Option<Box<Outgoing>>,
}

const _: () = assert!(size_of::<Connection>() <= 16);

pub(super) struct Accepting {
    pub fd: OwnedFd,
    /// What the ring polls: see [`set_of`].
    pub watch: Option<OwnedFd>,
    pub is_unix: bool,
    /// The kernel has a poll of this listener.
    pub armed: bool,
    pub closing: bool,
}
