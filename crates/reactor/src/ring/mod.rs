//! Rings: a way between processes of one machine that takes no system call while both are awake.
//!
//! A connection over a unix socket is given a ring: memory that both sides have mapped, with the
//! bytes that go each way, and two bells, by which one wakes the other. From then on all that the
//! connection receives and sends goes through the memory; the socket stays open and tells either
//! side, at once, that the other has gone. Ids, events and payloads stay what they were, so whoever
//! has the reactor need not know. `docs/ring.md` has the bytes.
//!
//! `memory` is the memory and one side's hold on it, `rings` all rings of one reactor, `turn` what
//! a reactor's wait does for them, `client` the client's side.

pub mod client;
mod memory;
pub(crate) mod rings;
pub(crate) mod turn;

use std::io::{self, IoSlice};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::event::{EventfdFlags, eventfd};
use rustix::net::{SendAncillaryBuffer, SendAncillaryMessage, SendFlags};
use rustix::pipe::{PipeFlags, pipe_with};

pub use memory::{RING_BYTES_MAX, RING_BYTES_MIN};

use memory::{End, Side};

/// A ring that nobody has been given yet.
pub struct Ring {
    end: End,
    memory: OwnedFd,
    /// What the client writes to, and the server waits for. The server never reads it.
    bell: OwnedFd,
    /// What the server writes to, ...
    call: OwnedFd,
    /// ...and the client waits for.
    heard: OwnedFd,
}

impl Ring {
    /// `ring_bytes`: the size of each of the two ways, a power of two within the bounds.
    pub fn new(ring_bytes: u32) -> io::Result<Ring> {
        let memory = memory::create(ring_bytes)?;
        let end = End::new(&memory, ring_bytes, Side::Server)?;
        let bell = eventfd(0, EventfdFlags::CLOEXEC)?;
        // A pipe, not an eventfd: whether a write waits belongs to an open file, and a pipe has two
        // of them. The client cannot have the server wait by what it does to its own.
        let (heard, call) = pipe_with(PipeFlags::CLOEXEC)?;
        rustix::io::ioctl_fionbio(&call, true)?;
        Ok(Ring { end, memory, bell, call, heard })
    }

    pub fn size_bytes(&self) -> usize {
        2 * self.end.ring_bytes() as usize
    }

    /// Sends its descriptors with the bytes; all of them at once, or not at all.
    fn hand_over(&self, socket: BorrowedFd<'_>, bytes: &[u8]) -> io::Result<()> {
        let descriptors = [self.memory.as_fd(), self.bell.as_fd(), self.heard.as_fd()];
        let mut space = [std::mem::MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(3))];
        let mut control = SendAncillaryBuffer::new(&mut space);
        assert!(control.push(SendAncillaryMessage::ScmRights(&descriptors)), "there is space");
        let flags = SendFlags::NOSIGNAL | SendFlags::DONTWAIT;
        let sent = rustix::net::sendmsg(socket, &[IoSlice::new(bytes)], &mut control, flags)?;
        if sent == bytes.len() { Ok(()) } else { Err(io::ErrorKind::WriteZero.into()) }
    }
}
