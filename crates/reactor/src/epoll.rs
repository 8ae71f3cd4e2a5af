//! The epoll backend, for where io_uring is not allowed. Edge-triggered: a connection that may
//! have more to read stands in `readable` until a read comes back short, so that pausing, or
//! having no buffer, costs no system call and no event is reported twice.
//!
//! # Safety
//!
//! The only `unsafe` is about receive buffers: one is written while its index is in `free`'s
//! hands, that is, while no `Buffer` names it.

use std::collections::VecDeque;
use std::io::{self, IoSlice};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::Duration;

use bitflags::bitflags;
use rustix::event::epoll::{self, EventData, EventFlags};
use rustix::io::Errno;
use rustix::net::{RecvFlags, SendAncillaryBuffer, SendFlags};
use rustix::time::Timespec;

use crate::accept::{Rest, accept_some};
use crate::backoff::Backoff;
use crate::memory::Pool;
use crate::payload::Cursor;
use crate::slab::Slab;
use crate::socket::connect_result;
use crate::token::{Kind, Token};
use crate::{Buffer, ConnectionId, Event, Listener, ListenerId, Options, Payload, Socket, Waker};

/// Events taken from the kernel in one turn.
const EVENTS_MAX: usize = 1024;

/// Pieces of a payload in one call; they are gathered on the stack.
const PIECES_MAX: usize = 64;

bitflags! {
    #[derive(Clone, Copy)]
    struct Flags: u8 {
        /// There may be something to read.
        const READABLE = 1 << 0;
        /// Read until the kernel says that there is no more, however short a read was: the end,
        /// an error or urgent data may follow without another edge.
        const TO_THE_END = 1 << 1;
        /// Stands in `readable`.
        const QUEUED = 1 << 2;
        const PAUSED = 1 << 3;
        /// `Closed` has been reported.
        const ENDED = 1 << 4;
        /// The kernel reports when there is room to send.
        const WATCHES_ROOM = 1 << 5;
        /// It is not there yet.
        const CONNECTING = 1 << 6;
    }
}

struct Connection {
    fd: OwnedFd,
    flags: Flags,
    outgoing: Option<Box<(Payload, Cursor)>>,
    /// What wakes us for its ring.
    bell: Option<Box<OwnedFd>>,
}

struct Accepting {
    fd: OwnedFd,
    is_unix: bool,
}

pub(crate) struct Epoll {
    epoll: OwnedFd,
    pool: Pool,
    /// Buffers that no `Buffer` names. The last used is used first: it is in the cache.
    free: Vec<u16>,
    connections: Slab<Connection>,
    listeners: Slab<Accepting>,
    /// Connections to read from, longest waiting first.
    readable: VecDeque<ConnectionId>,
    backoff: Backoff,
    /// Events that arose outside of `wait`.
    ready: Vec<Event>,
    /// Connections whose bell was rung.
    rung: Vec<ConnectionId>,
    /// Reports of quiet sends, for when there is another event.
    quiet: Vec<Event>,
    /// Scratch of `wait`.
    kernel_events: Vec<epoll::Event>,
    waker: Waker,
}

impl Epoll {
    pub(crate) fn new(options: &Options) -> io::Result<Epoll> {
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        let buffer_count = options.buffer_count.clamp(1, 32_768).next_power_of_two();
        let waker = Waker::new()?;
        let data = EventData::new_u64(Token::new(Kind::Wake, 0, 0).to_u64());
        epoll::add(&epoll, waker.fd(), data, EventFlags::IN | EventFlags::ET)?;
        Ok(Epoll {
            epoll,
            pool: Pool::new(buffer_count, options.buffer_size)?,
            free: (0..buffer_count).rev().collect(),
            connections: Slab::new(),
            listeners: Slab::new(),
            readable: VecDeque::new(),
            backoff: Backoff::default(),
            ready: Vec::new(),
            rung: Vec::new(),
            quiet: Vec::new(),
            kernel_events: Vec::with_capacity(EVENTS_MAX),
            waker,
        })
    }

    pub(crate) fn waker(&self) -> Waker {
        self.waker.clone()
    }

    pub(crate) fn connection_count(&self) -> usize {
        self.connections.count()
    }

    pub(crate) fn bytes(&self, buffer: &Buffer) -> &[u8] {
        self.pool.bytes(buffer)
    }

    pub(crate) fn recycle(&mut self, buffer: Buffer) {
        let index = self.pool.take_back(buffer);
        self.free.push(index);
    }

    pub(crate) fn listen(&mut self, listener: Listener) -> ListenerId {
        let is_unix = listener.is_unix();
        let fd = listener.into_fd();
        let prepared = rustix::io::ioctl_fionbio(&fd, true).map_err(io::Error::from);
        let (index, generation) = self.listeners.insert(Accepting { fd, is_unix });
        let id = ListenerId { index, generation };
        if let Err(error) = prepared.and_then(|()| self.watch_listener(id)) {
            self.ready.push(Event::AcceptFailed { listener: id, error });
            self.backoff.rest(id);
        }
        id
    }

    pub(crate) fn unlisten(&mut self, id: ListenerId) {
        self.backoff.forget(id);
        if let Some(accepting) = self.listeners.remove(id.index, id.generation) {
            // Closing alone would not do: there may be a hold on it. It rests if this fails.
            let _ = epoll::delete(&self.epoll, &accepting.fd);
        }
    }

    pub(crate) fn register(&mut self, mut socket: Socket) -> ConnectionId {
        let prepared = socket.set_nonblocking(true);
        self.add(socket, prepared, Flags::empty())
    }

    pub(crate) fn connect(&mut self, socket: Socket) -> ConnectionId {
        self.add(socket, Ok(()), Flags::CONNECTING)
    }

    fn add(&mut self, socket: Socket, prepared: io::Result<()>, flags: Flags) -> ConnectionId {
        let connection = Connection { fd: socket.into_fd(), flags, outgoing: None, bell: None };
        let (index, generation) = self.connections.insert(connection);
        let id = ConnectionId { index, generation };
        let connection = self.connections.find(index, generation).expect("just inserted");
        let data = EventData::new_u64(Token::new(Kind::Receive, index, generation).to_u64());
        let added = prepared.and_then(|()| {
            Ok(epoll::add(&self.epoll, &connection.fd, data, connection.interest())?)
        });
        if let Err(error) = added {
            connection.flags.insert(Flags::ENDED);
            self.ready.push(match flags.contains(Flags::CONNECTING) {
                true => Event::Connected { connection: id, result: Err(error) },
                false => Event::Closed { connection: id, error: Some(error) },
            });
        }
        id
    }

    /// As `send`, but a success at once is reported with the next event of another kind.
    pub(crate) fn send_quietly(&mut self, id: ConnectionId, payload: Payload) {
        let before = self.ready.len();
        self.send(id, payload);
        if matches!(self.ready.get(before), Some(Event::Sent { result: Ok(()), .. })) {
            self.quiet.extend(self.ready.pop());
        }
    }

    pub(crate) fn send(&mut self, id: ConnectionId, payload: Payload) {
        let Some(connection) = self.connections.find(id.index, id.generation) else { return };
        assert!(connection.outgoing.is_none(), "one send per connection at a time");
        assert!(!connection.flags.contains(Flags::CONNECTING), "there is no connection yet");
        let mut cursor = Cursor::default();
        match connection.send_some(&payload, &mut cursor) {
            Ok(true) => self.report_sent(id, payload, Ok(())),
            Ok(false) => {
                connection.outgoing = Some(Box::new((payload, cursor)));
                self.watch_room(id, true);
            }
            Err(error) => self.report_sent(id, payload, Err(error.into())),
        }
    }

    pub(crate) fn pause(&mut self, id: ConnectionId) {
        if let Some(connection) = self.connections.find(id.index, id.generation) {
            connection.flags.insert(Flags::PAUSED);
        }
    }

    pub(crate) fn resume(&mut self, id: ConnectionId) {
        if let Some(connection) = self.connections.find(id.index, id.generation) {
            connection.flags.remove(Flags::PAUSED);
            self.queue_if_readable(id);
        }
    }

    pub(crate) fn close(&mut self, id: ConnectionId) {
        // Closing the only descriptor takes it out of the epoll set, too. A bell has another one.
        if let Some(connection) = self.connections.remove(id.index, id.generation)
            && let Some(bell) = connection.bell
        {
            let _ = epoll::delete(&self.epoll, &bell);
        }
    }

    /// The socket of a connection that was not closed.
    pub(crate) fn socket(&mut self, id: ConnectionId) -> Option<BorrowedFd<'_>> {
        self.connections.find(id.index, id.generation).map(|connection| connection.fd.as_fd())
    }

    /// Notes from now on when the bell of a connection is rung, until that is closed.
    pub(crate) fn watch_bell(&mut self, id: ConnectionId, bell: OwnedFd) {
        let Some(connection) = self.connections.find(id.index, id.generation) else { return };
        let data = EventData::new_u64(Token::new(Kind::Bell, id.index, id.generation).to_u64());
        match epoll::add(&self.epoll, &bell, data, EventFlags::IN | EventFlags::ET) {
            Ok(()) => connection.bell = Some(Box::new(bell)),
            Err(error) => {
                let error = Some(error.into());
                self.ready.push(Event::Closed { connection: id, error });
            }
        }
    }

    /// Connections whose bells were rung.
    pub(crate) fn take_rung(&mut self) -> Vec<ConnectionId> {
        std::mem::take(&mut self.rung)
    }

    /// Whether there is nothing to do, as far as that can be told without a system call.
    pub(crate) fn is_quiet(&self) -> bool {
        self.ready.is_empty() && self.readable.is_empty()
    }

    pub(crate) fn wait(
        &mut self,
        timeout: Option<Duration>,
        events: &mut Vec<Event>,
    ) -> io::Result<()> {
        for listener in self.backoff.take_due() {
            if let Err(error) = self.watch_listener(listener) {
                events.push(Event::AcceptFailed { listener, error });
                self.backoff.rest(listener);
            }
        }
        let had = events.len();
        self.take_ready(events);
        let can_read = !self.readable.is_empty() && !self.free.is_empty();
        let must_not_block = events.len() > had || can_read;
        let timeout = if must_not_block { Some(Duration::ZERO) } else { timeout };
        let mut kernel_events = std::mem::take(&mut self.kernel_events);
        let result = self.poll(self.backoff.limit(timeout), &mut kernel_events);
        for event in kernel_events.drain(..) {
            self.dispatch(&event, events);
        }
        self.kernel_events = kernel_events;
        self.read_queued(events);
        self.ready.append(&mut self.quiet);
        self.take_ready(events);
        result
    }

    fn poll(
        &self,
        timeout: Option<Duration>,
        kernel_events: &mut Vec<epoll::Event>,
    ) -> io::Result<()> {
        let timeout = timeout.map(|timeout| Timespec {
            tv_sec: timeout.as_secs().min(i32::MAX as u64) as i64,
            tv_nsec: timeout.subsec_nanos().into(),
        });
        let space = rustix::buffer::spare_capacity(kernel_events);
        match epoll::wait(&self.epoll, space, timeout.as_ref()) {
            Ok(_) | Err(Errno::INTR) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }

    fn take_ready(&mut self, events: &mut Vec<Event>) {
        for event in self.ready.drain(..) {
            let is_open = match &event {
                Event::Sent { connection: id, .. }
                | Event::Closed { connection: id, .. }
                | Event::Connected { connection: id, .. } => {
                    self.connections.find(id.index, id.generation).is_some()
                }
                Event::AcceptFailed { listener: id, .. } => {
                    self.listeners.find(id.index, id.generation).is_some()
                }
                _ => true,
            };
            if is_open {
                events.push(event);
            }
        }
    }

    fn dispatch(&mut self, event: &epoll::Event, events: &mut Vec<Event>) {
        let token = Token::from_u64(event.data.u64());
        match token.kind {
            Kind::Wake => {
                if self.waker.take() {
                    events.push(Event::Woken);
                }
            }
            Kind::Accept => self.accept(token, events),
            Kind::Bell => {
                let generation = self.connections.generation(token.index);
                if let Some(generation) = generation.filter(|generation| token.fits(*generation)) {
                    self.rung.push(ConnectionId { index: token.index, generation });
                }
            }
            _ => self.on_edge(token, event.flags),
        }
    }

    fn on_edge(&mut self, token: Token, edges: EventFlags) {
        let Some(generation) = self.connections.generation(token.index) else { return };
        let id = ConnectionId { index: token.index, generation };
        let Some(connection) = self.connections.find(id.index, generation) else { return };
        assert!(token.fits(generation), "a closed descriptor has left the epoll set");
        if connection.flags.contains(Flags::CONNECTING) {
            return self.on_connect(id);
        }
        let last = EventFlags::RDHUP | EventFlags::HUP | EventFlags::ERR | EventFlags::PRI;
        if edges.intersects(last) {
            connection.flags.insert(Flags::READABLE | Flags::TO_THE_END);
        }
        if edges.contains(EventFlags::IN) {
            connection.flags.insert(Flags::READABLE);
        }
        self.queue_if_readable(id);
        if edges.intersects(EventFlags::OUT | EventFlags::ERR | EventFlags::HUP) {
            self.continue_send(id);
        }
    }

    /// Whatever the edge says: the socket knows. What it may have to read is another edge.
    fn on_connect(&mut self, id: ConnectionId) {
        let connection = self.connections.find(id.index, id.generation).expect("just found");
        connection.flags.remove(Flags::CONNECTING);
        let token = Token::new(Kind::Receive, id.index, id.generation);
        let data = EventData::new_u64(token.to_u64());
        let result = connect_result(&connection.fd).and_then(|()| {
            Ok(epoll::modify(&self.epoll, &connection.fd, data, connection.interest())?)
        });
        connection.flags.set(Flags::ENDED, result.is_err());
        self.ready.push(Event::Connected { connection: id, result });
    }

    fn queue_if_readable(&mut self, id: ConnectionId) {
        let Some(connection) = self.connections.find(id.index, id.generation) else { return };
        let none = Flags::QUEUED | Flags::PAUSED | Flags::ENDED;
        if connection.flags.contains(Flags::READABLE) && !connection.flags.intersects(none) {
            connection.flags.insert(Flags::QUEUED);
            self.readable.push_back(id);
        }
    }

    /// Reads once from each connection in the queue, as far as there are buffers.
    fn read_queued(&mut self, events: &mut Vec<Event>) {
        for _ in 0..self.readable.len() {
            if self.free.is_empty() {
                return;
            }
            let Some(id) = self.readable.pop_front() else { return };
            if let Some(connection) = self.connections.find(id.index, id.generation) {
                connection.flags.remove(Flags::QUEUED);
                if !connection.flags.intersects(Flags::PAUSED | Flags::ENDED) {
                    self.read(id, events);
                    self.queue_if_readable(id);
                }
            }
        }
    }

    fn read(&mut self, id: ConnectionId, events: &mut Vec<Event>) {
        let connection = self.connections.find(id.index, id.generation).expect("just found");
        let index = self.free.pop().expect("the caller looked");
        let (start, room) = (self.pool.address(index), self.pool.buffer_size());
        // SAFETY: the buffer is in the pool's region, was in `free`, and no `Buffer` names it.
        let space = unsafe { std::slice::from_raw_parts_mut(start.as_ptr(), room) };
        match rustix::net::recv(&connection.fd, space, RecvFlags::DONTWAIT) {
            Ok((_, size)) if size > 0 => {
                // A short read from a stream means that it is empty. (Not if a client passes
                // descriptors over a unix socket; then the rest is read at its next edge.)
                if size < room && !connection.flags.contains(Flags::TO_THE_END) {
                    connection.flags.remove(Flags::READABLE);
                }
                // SAFETY: it was in `free`, so no other `Buffer` names it; it comes back to `free`
                // only when this one is taken back.
                let buffer = unsafe { self.pool.hand_out(index, size) };
                return events.push(Event::Received { connection: id, buffer });
            }
            Err(Errno::INTR) => {}
            Err(Errno::AGAIN) => connection.flags.remove(Flags::READABLE | Flags::TO_THE_END),
            ended => {
                connection.flags.insert(Flags::ENDED);
                let error = ended.err().map(io::Error::from);
                events.push(Event::Closed { connection: id, error });
            }
        }
        self.free.push(index);
    }

    fn continue_send(&mut self, id: ConnectionId) {
        let connection = self.connections.find(id.index, id.generation).expect("just found");
        let Some(mut outgoing) = connection.outgoing.take() else { return };
        let (payload, cursor) = &mut *outgoing;
        let result = match connection.send_some(payload, cursor) {
            Ok(false) => {
                connection.outgoing = Some(outgoing);
                return self.watch_room(id, true);
            }
            Ok(true) => Ok(()),
            Err(error) => Err(error.into()),
        };
        self.watch_room(id, false);
        self.report_sent(id, outgoing.0, result);
    }

    fn report_sent(&mut self, id: ConnectionId, mut payload: Payload, result: io::Result<()>) {
        payload.clear();
        self.ready.push(Event::Sent { connection: id, payload, result });
    }

    /// Room to send is watched only while something waits for it: a unix socket would report an
    /// edge for every message its peer reads. If there is room already, that is an edge, too: what
    /// one call did not take goes on in the next turn.
    fn watch_room(&mut self, id: ConnectionId, watch: bool) {
        let connection = self.connections.find(id.index, id.generation).expect("it sends");
        connection.flags.set(Flags::WATCHES_ROOM, watch);
        let token = Token::new(Kind::Receive, id.index, id.generation);
        let data = EventData::new_u64(token.to_u64());
        let modified = epoll::modify(&self.epoll, &connection.fd, data, connection.interest());
        if let Err(error) = modified
            && watch
        {
            let outgoing = connection.outgoing.take().expect("it waits for room");
            self.report_sent(id, outgoing.0, Err(error.into()));
        }
    }

    fn watch_listener(&mut self, id: ListenerId) -> io::Result<()> {
        let Some(accepting) = self.listeners.find(id.index, id.generation) else { return Ok(()) };
        let token = Token::new(Kind::Accept, id.index, id.generation);
        let data = EventData::new_u64(token.to_u64());
        Ok(epoll::add(&self.epoll, &accepting.fd, data, EventFlags::IN)?)
    }

    /// Level-triggered: what is left after a turn is reported again.
    fn accept(&mut self, token: Token, events: &mut Vec<Event>) {
        let Some(generation) = self.listeners.generation(token.index) else { return };
        let id = ListenerId { index: token.index, generation };
        let Some(accepting) = self.listeners.find(id.index, generation) else { return };
        let take = |socket| events.push(Event::Accepted { listener: id, socket });
        if let Rest::Failed(error) = accept_some(&accepting.fd, accepting.is_unix, true, take) {
            let _ = epoll::delete(&self.epoll, &accepting.fd);
            events.push(Event::AcceptFailed { listener: id, error });
            self.backoff.rest(id);
        }
    }
}

impl Connection {
    fn interest(&self) -> EventFlags {
        if self.flags.contains(Flags::CONNECTING) {
            return EventFlags::OUT | EventFlags::ET;
        }
        let flags = EventFlags::IN | EventFlags::PRI | EventFlags::RDHUP | EventFlags::ET;
        if self.flags.contains(Flags::WATCHES_ROOM) { flags | EventFlags::OUT } else { flags }
    }

    /// Sends as much as one call takes. True: that was all.
    fn send_some(&self, payload: &Payload, cursor: &mut Cursor) -> Result<bool, Errno> {
        let flags = SendFlags::NOSIGNAL | SendFlags::DONTWAIT;
        let sent = if payload.shared.is_empty() {
            let rest = cursor.pieces(payload).next().unwrap_or_default();
            rustix::net::send(&self.fd, rest, flags)
        } else {
            let mut pieces = [IoSlice::new(&[]); PIECES_MAX];
            let mut count = 0;
            for (place, piece) in pieces.iter_mut().zip(cursor.pieces(payload)) {
                *place = IoSlice::new(piece);
                count += 1;
            }
            let mut control = SendAncillaryBuffer::default();
            rustix::net::sendmsg(&self.fd, &pieces[..count], &mut control, flags)
        };
        match sent {
            Ok(count) => cursor.advance(payload, count),
            Err(Errno::INTR | Errno::AGAIN) => {}
            Err(error) => return Err(error),
        }
        Ok(cursor.is_done(payload))
    }
}
