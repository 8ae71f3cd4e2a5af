//! The io_uring backend: multishot receive from provided buffers, one send per connection, one
//! `io_uring_enter` per turn; listeners are polled, and a few connections accepted in a turn. Needs
//! Linux 6.1.
//!
//! Per connection the kernel holds at most one receive and one send. A slot, its descriptor and
//! its `Outgoing` stay until both have had their last completion.
//!
//! # Safety
//!
//! What `Ring::push` is given names: descriptors, which their slots own; the `Outgoing` of a send,
//! which stays boxed in its slot until the send's completion; receive buffers, see `buffers.rs`.
//! A quiet send has no completion unless it fails; it is over when the turn that submitted it is.
//! Slots are emptied by `release_if_done` only, which looks that no operation is left; `drop`
//! waits for all of them, or leaks what they name.

mod bells;
mod buffers;
mod connection;
mod outgoing;
mod ring;
mod silence;

use std::collections::{HashMap, VecDeque};
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::time::Duration;

use io_uring::types::Fd;
use io_uring::{cqueue, opcode, squeue};

use crate::accept::{Rest, accept_some, set_of};
use crate::backoff::Backoff;
use crate::slab::Slab;
use crate::socket::connect_result;
use crate::token::{Kind, Token};
use crate::{Buffer, ConnectionId, Event, Listener, ListenerId, Options, Payload, Socket, Waker};
use buffers::{Buffers, GROUP};
use connection::{Accepting, Connection, Flags};
use outgoing::Outgoing;
use ring::Ring;
use silence::Silence;

/// How many idle `Outgoing` are kept; about 200 bytes each.
const SPARE_MAX: usize = 1024;

pub(crate) struct Uring {
    ring: Ring,
    buffers: Buffers,
    connections: Slab<Connection>,
    listeners: Slab<Accepting>,
    /// Listeners with connections to accept.
    acceptable: Vec<ListenerId>,
    /// Connections whose receive found no buffer, longest waiting first.
    starved: VecDeque<ConnectionId>,
    backoff: Backoff,
    silence: Silence,
    /// Events that arose outside of `wait`.
    ready: Vec<Event>,
    /// Connections with a quiet send that was pushed since the last turn.
    quiet: Vec<ConnectionId>,
    /// What wakes us for the rings of connections, by index, and those that were rung.
    bells: HashMap<u32, OwnedFd>,
    rung: Vec<ConnectionId>,
    /// Scratch of `wait`.
    completions: Vec<cqueue::Entry>,
    #[expect(clippy::vec_box, reason = "the kernel is given addresses inside of the box")]
    spare: Vec<Box<Outgoing>>,
    waker: Waker,
}

impl Uring {
    pub(crate) fn new(options: &Options) -> io::Result<Uring> {
        let ring = Ring::new(options.ring_entries)?;
        let buffer_count = options.buffer_count.clamp(1, 32_768).next_power_of_two();
        let buffers = Buffers::new(&ring, buffer_count, options.buffer_size)?;
        let mut uring = Uring {
            ring,
            buffers,
            connections: Slab::new(),
            listeners: Slab::new(),
            acceptable: Vec::new(),
            starved: VecDeque::new(),
            backoff: Backoff::default(),
            silence: Silence::default(),
            ready: Vec::new(),
            quiet: Vec::new(),
            bells: HashMap::new(),
            rung: Vec::new(),
            completions: Vec::new(),
            spare: Vec::new(),
            waker: Waker::new()?,
        };
        uring.watch_waker();
        Ok(uring)
    }

    pub(crate) fn waker(&self) -> Waker {
        self.waker.clone()
    }

    pub(crate) fn connection_count(&self) -> usize {
        self.connections.count()
    }

    pub(crate) fn bytes(&self, buffer: &Buffer) -> &[u8] {
        self.buffers.bytes(buffer)
    }

    pub(crate) fn recycle(&mut self, buffer: Buffer) {
        self.buffers.recycle(buffer);
    }

    pub(crate) fn listen(&mut self, listener: Listener) -> ListenerId {
        let is_unix = listener.is_unix();
        let fd = listener.into_fd();
        let prepared = rustix::io::ioctl_fionbio(&fd, true).map_err(io::Error::from);
        let accepting = Accepting { fd, watch: None, is_unix, armed: false, closing: false };
        let (index, generation) = self.listeners.insert(accepting);
        let id = ListenerId { index, generation };
        if let Err(error) = prepared.and_then(|()| self.watch_listener(id)) {
            self.accept_failed(id, error);
        }
        id
    }

    fn accept_failed(&mut self, listener: ListenerId, error: io::Error) {
        self.ready.push(Event::AcceptFailed { listener, error });
        self.backoff.rest(listener);
    }

    pub(crate) fn unlisten(&mut self, id: ListenerId) {
        self.backoff.forget(id);
        self.acceptable.retain(|listener| *listener != id);
        let Some(accepting) = self.listeners.find(id.index, id.generation) else { return };
        accepting.closing = true;
        if accepting.armed {
            self.cancel(Token::new(Kind::Accept, id.index, id.generation));
        } else {
            self.listeners.remove(id.index, id.generation);
        }
    }

    pub(crate) fn register(&mut self, mut socket: Socket) -> ConnectionId {
        // A descriptor in non-blocking mode would fail with EAGAIN instead of waiting in the ring.
        let prepared = socket.set_nonblocking(false);
        let fd = socket.into_fd();
        let connection = Connection { fd, flags: Flags::empty(), outgoing: None };
        let (index, generation) = self.connections.insert(connection);
        self.buffers.serve(self.connections.count());
        let id = ConnectionId { index, generation };
        match prepared {
            Ok(()) => self.receive(id),
            Err(error) => {
                self.ready.push(Event::Closed { connection: id, error: Some(error) });
                self.connection(id).flags.insert(Flags::ENDED);
            }
        }
        id
    }

    pub(crate) fn connect(&mut self, socket: Socket) -> ConnectionId {
        let fd = socket.into_fd();
        let raw = Fd(fd.as_raw_fd());
        let connection = Connection { fd, flags: Flags::CONNECTING, outgoing: None };
        let (index, generation) = self.connections.insert(connection);
        self.buffers.serve(self.connections.count());
        let entry = opcode::PollAdd::new(raw, libc::POLLOUT as u32).build();
        let token = Token::new(Kind::Connect, index, generation);
        // SAFETY: the descriptor stays open while `CONNECTING` is set.
        unsafe { self.ring.push(entry.user_data(token.to_u64())) };
        ConnectionId { index, generation }
    }

    /// The socket of a connection that was not closed.
    pub(crate) fn socket(&mut self, id: ConnectionId) -> Option<BorrowedFd<'_>> {
        self.open(id).map(|connection| connection.fd.as_fd())
    }

    /// As `send`, but the report waits for the next event of another kind. So would the rest of
    /// what one call does not carry, which is sent as by `send`.
    pub(crate) fn send_quietly(&mut self, id: ConnectionId, payload: Payload) {
        if self.open(id).is_some() && payload.size() > 0 && payload.fits_one_call() {
            self.connection(id).flags.insert(Flags::QUIET);
            self.quiet.push(id);
        }
        self.send(id, payload);
    }

    pub(crate) fn send(&mut self, id: ConnectionId, payload: Payload) {
        let Some(connection) = self.open(id) else { return };
        assert!(connection.outgoing.is_none(), "one send per connection at a time");
        assert!(!connection.flags.contains(Flags::CONNECTING), "there is no connection yet");
        let mut outgoing = self.spare.pop().unwrap_or_else(Outgoing::new);
        outgoing.start(payload);
        if outgoing.is_done() {
            let payload = outgoing.finish();
            self.spare.push(outgoing);
            self.ready.push(Event::Sent { connection: id, payload, result: Ok(()) });
            return;
        }
        self.connection(id).outgoing = Some(outgoing);
        self.continue_send(id);
    }

    pub(crate) fn pause(&mut self, id: ConnectionId) {
        let Some(connection) = self.open(id) else { return };
        connection.flags.insert(Flags::PAUSED);
        self.cancel_receive(id);
    }

    pub(crate) fn resume(&mut self, id: ConnectionId) {
        let Some(connection) = self.open(id) else { return };
        connection.flags.remove(Flags::PAUSED);
        self.receive(id);
    }

    pub(crate) fn close(&mut self, id: ConnectionId) {
        let Some(connection) = self.open(id) else { return };
        let flags = connection.flags;
        connection.flags.insert(Flags::CLOSING);
        self.cancel_receive(id);
        let with_kernel = [
            (Flags::SENDING, Kind::Send),
            (Flags::CONNECTING, Kind::Connect),
            (Flags::HAS_BELL, Kind::Bell),
        ];
        for (flag, kind) in with_kernel {
            if flags.contains(flag) {
                self.cancel(Token::new(kind, id.index, id.generation));
            }
        }
        self.release_if_done(id);
    }

    pub(crate) fn wait(
        &mut self,
        timeout: Option<Duration>,
        events: &mut Vec<Event>,
    ) -> io::Result<()> {
        for listener in self.backoff.take_due() {
            if let Err(error) = self.watch_listener(listener) {
                self.accept_failed(listener, error);
            }
        }
        self.feed_starved();
        self.watch_silence();
        let had = events.len();
        self.take_ready(events);
        // Those that are still starved although there are buffers come in the next turn, at once.
        let more = !self.starved.is_empty() && self.buffers.available() > 0;
        let must_not_block = events.len() > had || more || !self.acceptable.is_empty();
        let timeout = if must_not_block { Some(Duration::ZERO) } else { timeout };
        let mut completions = std::mem::take(&mut self.completions);
        let timeout = self.silence.limit(self.backoff.limit(timeout));
        let result = self.ring.turn(timeout, &mut completions);
        for completion in completions.drain(..) {
            self.complete(&completion, events);
        }
        self.completions = completions;
        if self.ring.is_settled() {
            self.settle_quiet(events);
        }
        for listener in std::mem::take(&mut self.acceptable) {
            self.accept(listener, events);
        }
        self.take_ready(events);
        result
    }

    fn accept(&mut self, id: ListenerId, events: &mut Vec<Event>) {
        let Some(accepting) = self.listeners.find(id.index, id.generation) else { return };
        let take = |socket| events.push(Event::Accepted { listener: id, socket });
        let done = match accept_some(&accepting.fd, accepting.is_unix, false, take) {
            Rest::None => self.watch_listener(id),
            Rest::Some => return self.acceptable.push(id),
            Rest::Failed(error) => Err(error),
        };
        if let Err(error) = done {
            self.accept_failed(id, error);
        }
    }

    /// Quiet sends never wait: the kernel has made each within the turn's system call, and those
    /// that failed have completed and lost their flag.
    fn settle_quiet(&mut self, events: &mut Vec<Event>) {
        for id in std::mem::take(&mut self.quiet) {
            let Some(connection) = self.connections.find(id.index, id.generation) else { continue };
            if connection.flags.contains(Flags::QUIET) {
                let all = connection.outgoing.as_ref().expect("it is being sent").call_bytes();
                self.on_send(id, all as i32, events);
            }
        }
    }

    fn take_ready(&mut self, events: &mut Vec<Event>) {
        for event in std::mem::take(&mut self.ready) {
            let is_open = match &event {
                Event::Sent { connection, .. } | Event::Closed { connection, .. } => {
                    self.open(*connection).is_some()
                }
                _ => true,
            };
            if is_open {
                events.push(event);
            }
        }
    }

    fn complete(&mut self, completion: &cqueue::Entry, events: &mut Vec<Event>) {
        let token = Token::from_u64(completion.user_data());
        match token.kind {
            Kind::Receive => self.on_receive(self.connection_id(token), completion, events),
            Kind::Send => self.on_send(self.connection_id(token), completion.result(), events),
            Kind::Accept => self.on_listener(token),
            Kind::Connect => self.on_connect(self.connection_id(token), events),
            Kind::Wake => self.on_wake(completion, events),
            Kind::Bell => self.on_bell(self.connection_id(token), completion),
            Kind::Cancel => self.on_cancel_failed(token, completion.result()),
        }
    }

    /// The connection an operation belongs to. Its slot cannot have been given to another while
    /// the operation was with the kernel.
    fn connection_id(&self, token: Token) -> ConnectionId {
        let generation = self.connections.generation(token.index);
        let generation = generation.expect("a completion names a slot");
        assert!(token.fits(generation), "a slot was emptied before its last completion");
        ConnectionId { index: token.index, generation }
    }

    fn on_receive(
        &mut self,
        id: ConnectionId,
        completion: &cqueue::Entry,
        events: &mut Vec<Event>,
    ) {
        let result = completion.result();
        let size = usize::try_from(result).unwrap_or(0);
        let index = cqueue::buffer_select(completion.flags());
        let buffer = index.map(|index| self.buffers.received(index, size));
        let connection = self.connection(id);
        if !cqueue::more(completion.flags()) {
            connection.flags.remove(Flags::RECEIVING | Flags::CANCELLING);
        }
        if connection.flags.contains(Flags::CLOSING) {
            buffer.into_iter().for_each(|buffer| self.recycle(buffer));
            return self.release_if_done(id);
        }
        if size > 0 {
            let buffer = buffer.expect("received bytes lie in a provided buffer");
            events.push(Event::Received { connection: id, buffer });
            return self.receive(id);
        }
        buffer.into_iter().for_each(|buffer| self.recycle(buffer));
        match -result {
            libc::ENOBUFS => self.starve(id),
            libc::ECANCELED | libc::EINTR | libc::EAGAIN => self.receive(id),
            error => {
                let error = (error != 0).then(|| io::Error::from_raw_os_error(error));
                self.connection(id).flags.insert(Flags::ENDED);
                events.push(Event::Closed { connection: id, error });
            }
        }
    }

    fn on_send(&mut self, id: ConnectionId, result: i32, events: &mut Vec<Event>) {
        let connection = self.connection(id);
        connection.flags.remove(Flags::SENDING | Flags::QUIET);
        let mut outgoing = connection.outgoing.take().expect("it stays until the completion");
        let is_closing = connection.flags.contains(Flags::CLOSING);
        let result = match result {
            _ if is_closing => Ok(()),
            0 => Err(io::ErrorKind::WriteZero.into()),
            1.. => {
                outgoing.advance(result as usize);
                Ok(())
            }
            _ if result == -libc::EINTR || result == -libc::EAGAIN => Ok(()),
            _ => Err(io::Error::from_raw_os_error(-result)),
        };
        if result.is_ok() && !is_closing && !outgoing.is_done() {
            self.connection(id).outgoing = Some(outgoing);
            return self.continue_send(id);
        }
        let payload = outgoing.finish();
        if self.spare.len() < SPARE_MAX {
            self.spare.push(outgoing);
        }
        if is_closing {
            return self.release_if_done(id);
        }
        events.push(Event::Sent { connection: id, payload, result });
    }

    /// Whatever the poll says: the socket knows.
    fn on_connect(&mut self, id: ConnectionId, events: &mut Vec<Event>) {
        let connection = self.connection(id);
        connection.flags.remove(Flags::CONNECTING);
        if connection.flags.contains(Flags::CLOSING) {
            return self.release_if_done(id);
        }
        let blocks = |fd| rustix::io::ioctl_fionbio(fd, false).map_err(io::Error::from);
        let result = connect_result(&connection.fd).and_then(|()| blocks(&connection.fd));
        match result {
            Ok(()) => self.receive(id),
            Err(_) => connection.flags.insert(Flags::ENDED),
        }
        events.push(Event::Connected { connection: id, result });
    }

    fn on_listener(&mut self, token: Token) {
        let generation = self.listeners.generation(token.index).expect("it names a slot");
        assert!(token.fits(generation), "a listener was removed before its last completion");
        let id = ListenerId { index: token.index, generation };
        let accepting = self.listeners.find(id.index, generation).expect("it is watched");
        accepting.armed = false;
        match accepting.closing {
            true => drop(self.listeners.remove(id.index, id.generation)),
            // Whatever the poll says: accepting finds out.
            false => self.acceptable.push(id),
        }
    }

    fn on_wake(&mut self, completion: &cqueue::Entry, events: &mut Vec<Event>) {
        if !cqueue::more(completion.flags()) {
            self.watch_waker();
        }
        if self.waker.take() {
            events.push(Event::Woken);
        }
    }

    /// The operation was not found: usually it has completed by itself. Should the kernel ever
    /// hold on to it nevertheless, a shutdown ends it.
    fn on_cancel_failed(&mut self, token: Token, result: i32) {
        if result >= 0 || self.connections.generation(token.index).is_none_or(|g| !token.fits(g)) {
            return;
        }
        let id = self.connection_id(token);
        let Some(connection) = self.connections.find(id.index, id.generation) else { return };
        if connection.flags.contains(Flags::CLOSING) {
            let _ = rustix::net::shutdown(&connection.fd, rustix::net::Shutdown::Both);
        }
    }

    /// Lets as many of the starved try again as there are buffers.
    fn feed_starved(&mut self) {
        let mut room = self.buffers.available();
        while room > 0
            && let Some(id) = self.starved.pop_front()
        {
            if let Some(connection) = self.open(id) {
                connection.flags.remove(Flags::STARVED);
                self.receive(id);
                room -= 1;
            }
        }
    }

    fn starve(&mut self, id: ConnectionId) {
        self.connection(id).flags.insert(Flags::STARVED);
        self.starved.push_back(id);
    }

    /// Starts the multishot receive unless there is one or a reason for none.
    fn receive(&mut self, id: ConnectionId) {
        let none = Flags::RECEIVING
            | Flags::PAUSED
            | Flags::STARVED
            | Flags::ENDED
            | Flags::CLOSING
            | Flags::CONNECTING;
        if !self.connection(id).flags.contains(Flags::HEARD) {
            self.hear(id);
        }
        let connection = self.connection(id);
        if connection.flags.intersects(none) {
            return;
        }
        connection.flags.insert(Flags::RECEIVING);
        let fd = Fd(connection.fd.as_raw_fd());
        let token = Token::new(Kind::Receive, id.index, id.generation);
        let entry = opcode::RecvMulti::new(fd, GROUP).build().user_data(token.to_u64());
        // SAFETY: the descriptor stays open while `RECEIVING` is set; buffers see `buffers.rs`.
        unsafe { self.ring.push(entry) };
    }

    /// Hands what is left of the connection's payload to the kernel.
    fn continue_send(&mut self, id: ConnectionId) {
        let connection = self.connection(id);
        connection.flags.insert(Flags::SENDING);
        let fd = connection.fd.as_raw_fd();
        let outgoing = connection.outgoing.as_mut().expect("there is something to send");
        let token = Token::new(Kind::Send, id.index, id.generation);
        let entry = match connection.flags.contains(Flags::QUIET) {
            true => outgoing.quiet_entry(fd),
            false => outgoing.entry(fd),
        };
        let entry = entry.user_data(token.to_u64());
        // SAFETY: while `SENDING` is set the descriptor stays open and `outgoing` in its place.
        unsafe { self.ring.push(entry) };
    }

    fn cancel_receive(&mut self, id: ConnectionId) {
        let connection = self.connection(id);
        if connection.flags.contains(Flags::RECEIVING)
            && !connection.flags.contains(Flags::CANCELLING)
        {
            connection.flags.insert(Flags::CANCELLING);
            self.cancel(Token::new(Kind::Receive, id.index, id.generation));
        }
    }

    /// By token, which the kernel finds in a hash table; by descriptor it would search them all.
    fn cancel(&mut self, token: Token) {
        let entry = opcode::AsyncCancel::new(token.to_u64()).build();
        let entry = entry.flags(squeue::Flags::SKIP_SUCCESS);
        let entry = entry.user_data(token.with_kind(Kind::Cancel).to_u64());
        // SAFETY: a cancellation names no memory.
        unsafe { self.ring.push(entry) };
    }

    fn watch_listener(&mut self, id: ListenerId) -> io::Result<()> {
        let Some(accepting) = self.listeners.find(id.index, id.generation) else { return Ok(()) };
        if accepting.armed {
            return Ok(());
        }
        let watch = accepting.watch.take().map_or_else(|| set_of(&accepting.fd), Ok)?;
        accepting.armed = true;
        let entry = opcode::PollAdd::new(Fd(watch.as_raw_fd()), libc::POLLIN as u32).build();
        accepting.watch = Some(watch);
        let token = Token::new(Kind::Accept, id.index, id.generation);
        // SAFETY: the descriptor stays open while `armed` is set.
        unsafe { self.ring.push(entry.user_data(token.to_u64())) };
        Ok(())
    }

    fn watch_waker(&mut self) {
        let fd = Fd(self.waker.fd().as_raw_fd());
        let entry = opcode::PollAdd::new(fd, libc::POLLIN as u32).multi(true).build();
        let token = Token::new(Kind::Wake, 0, 0);
        // SAFETY: the descriptor lives as long as `self.waker`.
        unsafe { self.ring.push(entry.user_data(token.to_u64())) };
    }

    /// The connection if its owner has not closed it.
    fn open(&mut self, id: ConnectionId) -> Option<&mut Connection> {
        let connection = self.connections.find(id.index, id.generation)?;
        (!connection.flags.contains(Flags::CLOSING)).then_some(connection)
    }

    fn connection(&mut self, id: ConnectionId) -> &mut Connection {
        self.connections.find(id.index, id.generation).expect("the slot is in use")
    }

    fn release_if_done(&mut self, id: ConnectionId) {
        let flags = self.connection(id).flags;
        let with_kernel = Flags::RECEIVING | Flags::SENDING | Flags::CONNECTING | Flags::HAS_BELL;
        if flags.contains(Flags::CLOSING) && !flags.intersects(with_kernel) {
            self.connections.remove(id.index, id.generation);
            self.bells.remove(&id.index);
            self.buffers.serve(self.connections.count());
        }
    }
}

impl Drop for Uring {
    /// Takes everything back from the kernel. If it keeps something for seconds, the memory is
    /// left to it.
    fn drop(&mut self) {
        const ROUNDS_MAX: usize = 20;
        for (index, generation) in self.listeners.ids() {
            self.unlisten(ListenerId { index, generation });
        }
        for (index, generation) in self.connections.ids() {
            self.close(ConnectionId { index, generation });
        }
        let mut events = Vec::new();
        for _ in 0..ROUNDS_MAX {
            if self.connections.count() + self.listeners.count() == 0 {
                return;
            }
            let _ = self.wait(Some(Duration::from_millis(100)), &mut events);
            events.clear();
        }
        self.buffers.leak();
        std::mem::forget(std::mem::replace(&mut self.connections, Slab::new()));
    }
}
