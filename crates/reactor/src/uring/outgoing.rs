//! A send on its way: the payload and what the kernel has to find at a fixed address meanwhile.
//!
//! # Safety
//!
//! While an entry made by `entry` is with the kernel, the `Outgoing` stays in its box and is not
//! touched: it lies in the connection's slot, which only `Uring::on_send` takes it out of, after
//! the completion. Then neither the payload's memory nor `pieces` nor `header` moves or changes.

use std::os::fd::RawFd;

use io_uring::types::Fd;
use io_uring::{opcode, squeue};

use crate::Payload;
use crate::payload::{CALL_BYTES_MAX, Cursor};

/// No signal if the peer is gone; one completion for all of it, not one per short send.
const FLAGS: i32 = libc::MSG_NOSIGNAL | libc::MSG_WAITALL;

/// Never waits for room: sends all at once or fails at once.
const QUIET_FLAGS: i32 = FLAGS | libc::MSG_DONTWAIT;

pub(crate) struct Outgoing {
    payload: Payload,
    /// Bytes that the last entry would send.
    call_bytes: usize,
    cursor: Cursor,
    pieces: Vec<libc::iovec>,
    header: libc::msghdr,
}

impl Outgoing {
    pub(crate) fn new() -> Box<Outgoing> {
        // SAFETY: all fields of the header are integers or pointers, for which zero is valid.
        let header = unsafe { std::mem::zeroed() };
        let (payload, cursor) = (Payload::default(), Cursor::default());
        Box::new(Outgoing { payload, call_bytes: 0, cursor, pieces: Vec::new(), header })
    }

    pub(crate) fn start(&mut self, payload: Payload) {
        self.payload = payload;
        self.cursor = Cursor::default();
    }

    pub(crate) fn advance(&mut self, count: usize) {
        self.cursor.advance(&self.payload, count);
    }

    pub(crate) fn is_done(&self) -> bool {
        self.cursor.is_done(&self.payload)
    }

    /// The payload, emptied.
    pub(crate) fn finish(&mut self) -> Payload {
        let mut payload = std::mem::take(&mut self.payload);
        payload.clear();
        payload
    }

    pub(crate) fn call_bytes(&self) -> usize {
        self.call_bytes
    }

    /// The operation that sends what is left, or as much of it as one call takes.
    pub(crate) fn entry(&mut self, fd: RawFd) -> squeue::Entry {
        self.entry_with(fd, FLAGS)
    }

    /// The same, without waiting for room and with a completion only if not all was sent.
    pub(crate) fn quiet_entry(&mut self, fd: RawFd) -> squeue::Entry {
        self.entry_with(fd, QUIET_FLAGS).flags(squeue::Flags::SKIP_SUCCESS)
    }

    fn entry_with(&mut self, fd: RawFd, flags: i32) -> squeue::Entry {
        if self.payload.shared.is_empty() {
            let rest = self.cursor.pieces(&self.payload).next().unwrap_or_default();
            debug_assert!(rest.len() <= CALL_BYTES_MAX);
            self.call_bytes = rest.len();
            let send = opcode::Send::new(Fd(fd), rest.as_ptr(), rest.len() as u32);
            return send.flags(flags).build();
        }
        self.pieces.clear();
        self.pieces.extend(self.cursor.pieces(&self.payload).map(|piece| libc::iovec {
            iov_base: piece.as_ptr().cast_mut().cast(),
            iov_len: piece.len(),
        }));
        self.call_bytes = self.pieces.iter().map(|piece| piece.iov_len).sum();
        self.header.msg_iov = self.pieces.as_mut_ptr();
        self.header.msg_iovlen = self.pieces.len() as _;
        opcode::SendMsg::new(Fd(fd), &self.header).flags(flags as u32).build()
    }
}
