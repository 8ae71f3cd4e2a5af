//! The client's side of a ring: a stream that blocks, or is polled. It takes no system call while
//! the server is awake and answers within the time for which this side looks before it sleeps.

use std::io::{self, IoSliceMut, Read, Write};
use std::mem::MaybeUninit;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::Errno;
use rustix::net::{RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags};
use rustix::time::Timespec;

use super::memory::{End, FOR_DATA, FOR_ROOM, Side, size_of_rings};
use super::turn::Spin;

/// For how long a client looks before it sleeps, unless it says otherwise.
pub const SPIN: Duration = Duration::from_micros(20);

/// What comes with the reply that tells of a ring.
pub struct Descriptors {
    pub memory: OwnedFd,
    /// Rung by the client.
    pub bell: OwnedFd,
    /// Rung by the server; ends with it.
    pub heard: OwnedFd,
}

/// Reads from a socket, and takes a ring's descriptors if they come with it.
pub fn receive(socket: &UnixStream, bytes: &mut [u8]) -> io::Result<(usize, Option<Descriptors>)> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(3))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let parts = &mut [IoSliceMut::new(bytes)];
    let got = rustix::io::retry_on_intr(|| {
        rustix::net::recvmsg(socket, parts, &mut control, RecvFlags::CMSG_CLOEXEC)
    })?;
    let mut descriptors = Vec::new();
    for message in control.drain() {
        if let RecvAncillaryMessage::ScmRights(rights) = message {
            descriptors.extend(rights);
        }
    }
    let three = <[OwnedFd; 3]>::try_from(descriptors).ok();
    let descriptors = three.map(|[memory, bell, heard]| Descriptors { memory, bell, heard });
    Ok((got.bytes, descriptors))
}

/// A connection through a ring.
pub struct Stream {
    end: End,
    bell: OwnedFd,
    heard: OwnedFd,
    /// Kept open: the server takes its end for ours.
    socket: UnixStream,
    spin: Spin,
    timeout: Option<Duration>,
    /// What whoever polls waits for.
    wanted: u32,
}

impl Stream {
    /// Fails if what came is no ring.
    pub fn new(socket: UnixStream, descriptors: Descriptors) -> io::Result<Stream> {
        let Descriptors { memory, bell, heard } = descriptors;
        let end = End::new(&memory, size_of_rings(&memory)?, Side::Client)?;
        let spin = Spin::new(SPIN);
        Ok(Stream { end, bell, heard, socket, spin, timeout: None, wanted: 0 })
    }

    /// For how long it looks before it sleeps.
    pub fn set_spin(&mut self, time: Duration) {
        self.spin = Spin::new(time);
    }

    /// For how long a read or a write waits at most; then it fails with `WouldBlock`.
    pub fn set_timeout(&mut self, timeout: Option<Duration>) {
        self.timeout = timeout;
    }

    /// What wakes the server.
    pub fn bell(&self) -> &OwnedFd {
        &self.bell
    }

    /// Bytes of each of the two ways.
    pub fn ring_bytes(&self) -> usize {
        self.end.ring_bytes() as usize
    }

    /// Whether there is something to read.
    pub fn is_readable(&self) -> bool {
        !matches!(self.end.readable(), Ok(0))
    }

    /// What the server rings where it was asked to; it ends when the server goes. Whoever polls
    /// reads it, and sets it not to wait.
    pub fn heard(&self) -> &OwnedFd {
        &self.heard
    }

    /// Says that nothing more is written; what was written is answered still.
    pub fn shutdown(&self) -> io::Result<()> {
        self.socket.shutdown(std::net::Shutdown::Write)
    }

    /// Reads without waiting: `None` if nothing is there. Then the server rings once there is.
    pub fn try_read(&mut self, bytes: &mut [u8]) -> io::Result<Option<usize>> {
        if bytes.is_empty() {
            return Ok(Some(0));
        }
        if !self.is_there_or_rung(FOR_DATA)? {
            return Ok(None);
        }
        let count = self.end.readable()?.min(bytes.len());
        self.end.take_into(&mut bytes[..count]);
        self.ring_for(FOR_ROOM)?;
        Ok(Some(count))
    }

    /// As that, writes as much as there is room for.
    pub fn try_write(&mut self, bytes: &[u8]) -> io::Result<Option<usize>> {
        if bytes.is_empty() {
            return Ok(Some(0));
        }
        if !self.is_there_or_rung(FOR_ROOM)? {
            return Ok(None);
        }
        let count = self.end.room(bytes.len())?.min(bytes.len());
        self.end.put(&bytes[..count]);
        self.end.publish();
        self.ring_for(FOR_DATA)?;
        Ok(Some(count))
    }

    /// Whether it is there; if not, the server is asked to ring. Who waits for the other is not
    /// forgotten.
    fn is_there_or_rung(&mut self, reason: u32) -> io::Result<bool> {
        let Stream { end, wanted, .. } = self;
        if !is_there(end, reason) {
            *wanted |= reason;
            end.fall_asleep(*wanted);
            if !is_there(end, reason) {
                return Ok(false);
            }
        }
        if *wanted & reason != 0 {
            *wanted &= !reason;
            end.want(*wanted);
        }
        Ok(true)
    }

    /// Waits until the server has written or read; false if it has gone.
    fn wait(&mut self, reason: u32, deadline: Option<Instant>) -> io::Result<bool> {
        let Stream { end, spin, .. } = self;
        if spin.run(|| is_there(end, reason)) {
            return Ok(true);
        }
        self.end.fall_asleep(reason);
        let result = match is_there(&mut self.end, reason) {
            true => Ok(true),
            false => self.sleep(deadline),
        };
        self.end.stay_awake();
        result
    }

    fn sleep(&self, deadline: Option<Instant>) -> io::Result<bool> {
        loop {
            let left = deadline.map(|deadline| deadline.saturating_duration_since(Instant::now()));
            let limit = left.map(|left| Timespec {
                tv_sec: left.as_secs() as i64,
                tv_nsec: left.subsec_nanos().into(),
            });
            if limit.is_some() {
                let mut heard = [PollFd::new(&self.heard, PollFlags::IN)];
                match poll(&mut heard, limit.as_ref()) {
                    Ok(0) => return Err(io::ErrorKind::WouldBlock.into()),
                    Ok(_) => {}
                    Err(Errno::INTR) => continue,
                    Err(error) => return Err(error.into()),
                }
            }
            match rustix::io::read(&self.heard, &mut [0; 256]) {
                Ok(count) => return Ok(count > 0),
                Err(Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
        }
    }

    fn ring_for(&self, reason: u32) -> io::Result<()> {
        if self.end.has_to_ring(reason) {
            rustix::io::write(&self.bell, &1u64.to_ne_bytes())?;
        }
        Ok(())
    }

    fn deadline(&self) -> Option<Instant> {
        self.timeout.map(|timeout| Instant::now() + timeout)
    }

    /// Appends all that there is; waits if there is nothing. 0: the server has closed the
    /// connection.
    pub fn read_some(&mut self, into: &mut Vec<u8>) -> io::Result<usize> {
        let readable = self.wait_readable()?;
        if readable > 0 {
            self.end.take(readable, into);
            self.ring_for(FOR_ROOM)?;
        }
        Ok(readable)
    }

    fn wait_readable(&mut self) -> io::Result<usize> {
        let deadline = self.deadline();
        let mut is_there = true;
        loop {
            let readable = self.end.readable()?;
            if readable > 0 {
                return Ok(readable);
            }
            if !is_there {
                return Ok(0);
            }
            is_there = self.wait(FOR_DATA, deadline)?;
        }
    }
}

fn is_there(end: &mut End, reason: u32) -> bool {
    match reason {
        FOR_DATA => !matches!(end.readable(), Ok(0)),
        _ => !matches!(end.room(1), Ok(0)),
    }
}

impl Read for Stream {
    fn read(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
        let count = if bytes.is_empty() { 0 } else { self.wait_readable()?.min(bytes.len()) };
        if count > 0 {
            self.end.take_into(&mut bytes[..count]);
            self.ring_for(FOR_ROOM)?;
        }
        Ok(count)
    }
}

impl Write for Stream {
    /// Writes as much as there is room for, and waits if there is none.
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if bytes.is_empty() {
            return Ok(0);
        }
        let deadline = self.deadline();
        loop {
            let room = self.end.room(bytes.len())?.min(bytes.len());
            if room > 0 {
                self.end.put(&bytes[..room]);
                self.end.publish();
                self.ring_for(FOR_DATA)?;
                return Ok(room);
            }
            if !self.wait(FOR_ROOM, deadline)? {
                return Err(io::ErrorKind::BrokenPipe.into());
            }
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
