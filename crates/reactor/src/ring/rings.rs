//! All rings of one reactor: what came is taken out, what goes is put in, and who sleeps is rung.
//!
//! A ring is awake, and looked at in every turn, while something comes; else it has said that it
//! wants to be rung, and costs nothing.

use std::io;
use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, poll};
use rustix::time::Timespec;

use super::memory::{Broken, End, FOR_DATA, FOR_ROOM};
use crate::payload::Cursor;
use crate::{Buffer, ConnectionId, Event, Payload};

/// What is taken out of a ring in one turn.
const TAKE_MAX: usize = 256 << 10;

/// Buffers that may be out at once.
const BUFFERS_MAX: usize = 1024;
/// An emptied buffer that is larger is not kept, nor are more than so many of them.
const KEPT_BYTES_MAX: usize = 256 << 10;
const KEPT_MAX: usize = 16;

/// A ring that brings nothing for so many turns of others is looked at no more until it is rung.
const QUIET_TURNS_MAX: u8 = 64;

/// How often it is looked whether those are still there that have ended their stream and have yet
/// to read: nothing more comes from them, not even their end.
const PARTING_LOOK: Duration = Duration::from_millis(10);

struct Held {
    end: End,
    call: OwnedFd,
    outgoing: Option<(Payload, Cursor)>,
    is_quiet_send: bool,
    is_awake: bool,
    is_paused: bool,
    /// `Closed` has been reported, or is about to be.
    has_ended: bool,
    /// Stands in `parting`.
    is_parting: bool,
    quiet_turns: u8,
}

/// Rings by the ids of their connections, which are dense.
#[derive(Default)]
struct Table {
    slots: Vec<Option<Box<(ConnectionId, Held)>>>,
}

impl Table {
    fn contains(&self, id: ConnectionId) -> bool {
        let slot = self.slots.get(id.index as usize).and_then(Option::as_ref);
        slot.is_some_and(|slot| slot.0 == id)
    }

    fn find(&mut self, id: ConnectionId) -> Option<&mut Held> {
        let slot = self.slots.get_mut(id.index as usize)?.as_deref_mut()?;
        (slot.0 == id).then_some(&mut slot.1)
    }

    fn insert(&mut self, id: ConnectionId, held: Held) {
        let index = id.index as usize;
        if index >= self.slots.len() {
            self.slots.resize_with(index + 1, || None);
        }
        self.slots[index] = Some(Box::new((id, held)));
    }

    fn remove(&mut self, id: ConnectionId) -> Option<Held> {
        let slot = self.slots.get_mut(id.index as usize)?;
        slot.take_if(|slot| slot.0 == id).map(|slot| slot.1)
    }
}

pub(crate) struct Rings {
    by_id: Table,
    count: usize,
    awake: Vec<ConnectionId>,
    /// Those that have ended and have no room for what is sent to them.
    parting: Vec<ConnectionId>,
    /// When they were last looked at.
    looked: Instant,
    /// Events that arose outside of a turn.
    ready: Vec<Event>,
    /// Reports of quiet sends, for when there is another event.
    quiet: Vec<Event>,
    owner: u32,
    buffers: Vec<Vec<u8>>,
    /// Buffers that no `Buffer` names.
    free: Vec<u16>,
}

impl Rings {
    pub(crate) fn new() -> Rings {
        Rings {
            by_id: Table::default(),
            count: 0,
            awake: Vec::new(),
            parting: Vec::new(),
            looked: Instant::now(),
            ready: Vec::new(),
            quiet: Vec::new(),
            owner: Buffer::new_owner(),
            buffers: Vec::new(),
            free: Vec::new(),
        }
    }

    pub(crate) fn has(&self, id: ConnectionId) -> bool {
        self.by_id.contains(id)
    }

    /// Takes in the ring of a connection.
    pub(crate) fn insert(&mut self, id: ConnectionId, end: End, call: OwnedFd) {
        let held = Held {
            end,
            call,
            outgoing: None,
            is_quiet_send: false,
            is_awake: true,
            is_paused: false,
            has_ended: false,
            is_parting: false,
            quiet_turns: 0,
        };
        self.awake.push(id);
        self.by_id.insert(id, held);
        self.count += 1;
    }

    pub(crate) fn remove(&mut self, id: ConnectionId) {
        let Some(mut held) = self.by_id.remove(id) else { return };
        self.count -= 1;
        let is_read = !held.is_deserted();
        held.end.give_back(is_read);
        if held.is_awake {
            self.awake.retain(|awake| *awake != id);
        }
        if self.count == 0 {
            // All of these are of connections that are closed.
            self.ready.clear();
            self.quiet.clear();
            self.parting.clear();
        }
    }

    /// Whether there is any.
    pub(crate) fn are_there(&self) -> bool {
        self.count > 0
    }

    pub(crate) fn report(&mut self, event: Event) {
        self.ready.push(event);
    }

    pub(crate) fn has_reports(&self) -> bool {
        !self.ready.is_empty()
    }

    pub(crate) fn has_awake(&self) -> bool {
        !self.awake.is_empty()
    }

    /// Hands out what arose outside of a turn, and with it reports of quiet sends.
    pub(crate) fn take_reports(&mut self, events: &mut Vec<Event>) {
        let Rings { by_id, ready, quiet, .. } = self;
        let of_open = |event: &Event| match event {
            Event::Sent { connection, .. } | Event::Closed { connection, .. } => {
                by_id.contains(*connection)
            }
            _ => true,
        };
        events.extend(ready.drain(..).chain(quiet.drain(..)).filter(of_open));
    }

    pub(crate) fn send(&mut self, id: ConnectionId, payload: Payload, is_quiet: bool) {
        let Some(held) = self.by_id.find(id) else { return };
        assert!(held.outgoing.is_none(), "one send per connection at a time");
        (held.outgoing, held.is_quiet_send) = (Some((payload, Cursor::default())), is_quiet);
        self.go_on_sending(id);
        self.wake(id);
    }

    /// Puts in what there is room for, as much as one call of a socket would carry. What does not
    /// fit at once is no quiet send any more: who waits for room waits for the report.
    fn go_on_sending(&mut self, id: ConnectionId) {
        let Some(held) = self.by_id.find(id) else { return };
        let Some((mut payload, mut cursor)) = held.outgoing.take() else { return };
        let mut result = held.put(&payload, &mut cursor).map_err(io::Error::from);
        if result.is_ok() && !cursor.is_done(&payload) {
            if !held.has_ended || !held.is_deserted() {
                held.outgoing = Some((payload, cursor));
                held.is_quiet_send = false;
                if held.has_ended && !std::mem::replace(&mut held.is_parting, true) {
                    self.parting.push(id);
                }
                return;
            }
            result = Err(io::ErrorKind::BrokenPipe.into());
        }
        payload.clear();
        let is_quiet = held.is_quiet_send && result.is_ok();
        let event = Event::Sent { connection: id, payload, result };
        if is_quiet { self.quiet.push(event) } else { self.ready.push(event) }
    }

    /// Has the sends of those fail that have gone without having read.
    fn look_at_parting(&mut self) {
        if self.parting.is_empty() || self.looked.elapsed() < PARTING_LOOK {
            return;
        }
        self.looked = Instant::now();
        for id in std::mem::take(&mut self.parting) {
            if let Some(held) = self.by_id.find(id) {
                held.is_parting = false;
                self.go_on_sending(id);
            }
        }
    }

    /// A wait is no longer than that.
    pub(crate) fn limit(&self, timeout: Option<Duration>) -> Option<Duration> {
        match (self.parting.is_empty(), timeout) {
            (true, timeout) => timeout,
            (false, timeout) => Some(timeout.map_or(PARTING_LOOK, |time| time.min(PARTING_LOOK))),
        }
    }

    pub(crate) fn pause(&mut self, id: ConnectionId, is_paused: bool) {
        if let Some(held) = self.by_id.find(id) {
            held.is_paused = is_paused;
            self.wake(id);
        }
    }

    /// Looks at it in the next turn; says whether it slept.
    fn wake(&mut self, id: ConnectionId) -> bool {
        let Some(held) = self.by_id.find(id) else { return false };
        held.quiet_turns = 0;
        let slept = !std::mem::replace(&mut held.is_awake, true);
        if slept {
            held.end.stay_awake();
            self.awake.push(id);
        }
        slept
    }

    /// Its bell was rung. Who is awake has had its look in this turn.
    pub(crate) fn hear(&mut self, id: ConnectionId, events: &mut Vec<Event>) {
        if self.wake(id) {
            self.look_at(id, events);
        }
    }

    /// A turn of those that are awake.
    pub(crate) fn poll(&mut self, events: &mut Vec<Event>) {
        self.look_at_parting();
        for at in (0..self.awake.len()).rev() {
            let held = self.look_at(self.awake[at], events);
            if held.quiet_turns >= QUIET_TURNS_MAX && held.falls_asleep() {
                self.awake.swap_remove(at);
            }
        }
    }

    fn look_at(&mut self, id: ConnectionId, events: &mut Vec<Event>) -> &mut Held {
        self.go_on_sending(id);
        let had = events.len();
        self.take(id, events);
        let held = self.by_id.find(id).expect("it is awake");
        held.quiet_turns = if events.len() > had { 0 } else { held.quiet_turns + 1 };
        held
    }

    /// Whether one that is awake has anything to do.
    pub(crate) fn has_news(&mut self) -> bool {
        let Rings { awake, by_id, .. } = self;
        awake.iter().any(|id| by_id.find(*id).expect("it is awake").has_news())
    }

    /// Has all be rung from now on; those that have news by then stay awake.
    pub(crate) fn fall_asleep(&mut self) {
        let Rings { awake, by_id, .. } = self;
        awake.retain(|id| !by_id.find(*id).expect("it is awake").falls_asleep());
    }

    /// Takes out what there is, as much as a turn may bring.
    fn take(&mut self, id: ConnectionId, events: &mut Vec<Event>) {
        let held = self.by_id.find(id).expect("the caller has looked");
        if held.is_paused || held.has_ended {
            return;
        }
        match held.end.readable() {
            Ok(0) => {}
            Ok(count) => self.take_out(id, count.min(TAKE_MAX), events),
            Err(broken) => {
                held.has_ended = true;
                events.push(Event::Closed { connection: id, error: Some(broken.into()) });
            }
        }
    }

    fn take_out(&mut self, id: ConnectionId, count: usize, events: &mut Vec<Event>) {
        let Some(index) = self.free.pop().or_else(|| self.new_buffer()) else { return };
        let held = self.by_id.find(id).expect("the caller has looked");
        let bytes = &mut self.buffers[usize::from(index)];
        bytes.clear();
        held.end.take(count, bytes);
        held.ring_for(FOR_ROOM);
        let buffer = Buffer::named(self.owner, index, count);
        events.push(Event::Received { connection: id, buffer });
    }

    fn new_buffer(&mut self) -> Option<u16> {
        let index = self.buffers.len();
        (index < BUFFERS_MAX).then(|| {
            self.buffers.push(Vec::new());
            index as u16
        })
    }

    /// The socket of a connection has ended, or tells something: what stands in the ring still
    /// counts, then it is over.
    pub(crate) fn end(
        &mut self,
        id: ConnectionId,
        error: Option<io::Error>,
        events: &mut Vec<Event>,
    ) {
        let Some(held) = self.by_id.find(id) else { return };
        if held.has_ended {
            return;
        }
        held.is_paused = false;
        let ring_bytes = held.end.ring_bytes() as usize;
        // No more than there can be, should somebody still write.
        for _ in 0..ring_bytes.div_ceil(TAKE_MAX) {
            self.take(id, events);
        }
        let held = self.by_id.find(id).expect("just found");
        if !std::mem::replace(&mut held.has_ended, true) {
            events.push(Event::Closed { connection: id, error });
        }
        // It may have gone with a ring full of replies.
        self.go_on_sending(id);
    }

    /// The bytes of a buffer, if it is of a ring.
    #[inline]
    pub(crate) fn bytes(&self, buffer: &Buffer) -> Option<&[u8]> {
        buffer.index_at(self.owner).map(|index| &self.buffers[usize::from(index)][..])
    }

    /// Takes a buffer back, or returns it if it is not of a ring.
    #[inline]
    pub(crate) fn recycle(&mut self, buffer: Buffer) -> Option<Buffer> {
        let Some(index) = buffer.index_at(self.owner) else { return Some(buffer) };
        let bytes = &mut self.buffers[usize::from(index)];
        if bytes.capacity() > KEPT_BYTES_MAX || self.free.len() >= KEPT_MAX {
            *bytes = Vec::new();
        }
        self.free.push(index);
        None
    }
}

impl Held {
    fn put(&mut self, payload: &Payload, cursor: &mut Cursor) -> Result<(), Broken> {
        let mut count = 0;
        for piece in cursor.pieces(payload) {
            let room = self.end.room(piece.len())?;
            let fits = piece.len().min(room);
            self.end.put(&piece[..fits]);
            count += fits;
            if fits < piece.len() {
                break;
            }
        }
        if count > 0 {
            self.end.publish();
            self.ring_for(FOR_DATA);
            cursor.advance(payload, count);
        }
        Ok(())
    }

    /// Wakes the client if it sleeps for that. A bell that is full has been rung, and one that
    /// nobody hears is of a client that has gone, which the socket tells.
    fn ring_for(&self, reasons: u32) {
        if self.end.has_to_ring(reasons) {
            let _ = rustix::io::write(&self.call, &[1]);
        }
    }

    /// Whether the client's end of its pipe is closed. While its socket is open that is its own
    /// affair; then it is the only sign that it has gone altogether, and not just said its last.
    fn is_deserted(&self) -> bool {
        let mut call = [PollFd::new(&self.call, PollFlags::empty())];
        let at_once = Timespec { tv_sec: 0, tv_nsec: 0 };
        let found = poll(&mut call, Some(&at_once));
        found.is_ok() && call[0].revents().contains(PollFlags::ERR)
    }

    fn has_news(&mut self) -> bool {
        let reads = !self.is_paused && !self.has_ended;
        let has_data = reads && !matches!(self.end.readable(), Ok(0));
        has_data || self.outgoing.is_some() && !matches!(self.end.room(1), Ok(0))
    }

    fn falls_asleep(&mut self) -> bool {
        let reads = !self.is_paused && !self.has_ended;
        let reasons = if reads { FOR_DATA } else { 0 };
        self.end.fall_asleep(reasons | if self.outgoing.is_some() { FOR_ROOM } else { 0 });
        self.is_awake = self.has_news();
        if self.is_awake {
            self.end.stay_awake();
        }
        self.quiet_turns = 0;
        !self.is_awake
    }
}
