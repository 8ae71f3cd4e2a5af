//! The backend of a simulated world: nothing blocks, and no system is called. Who drives it asks
//! `due_ns` when to call `wait` again.

mod network;

use std::io;
use std::net::IpAddr;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::time::Duration;

use crate::payload::Cursor;
use crate::slab::Slab;
use crate::{
    Address, Buffer, ConnectionId, Event, Listener, ListenerId, Payload, Socket, Waker, clock,
};

pub use network::{End, Network, Place, Received};

/// Receive buffers, few and small, so that running out of them is part of every run.
const BUFFERS: u16 = 8;
const BUFFER_BYTES: usize = 4096;

struct Connection {
    end: End,
    is_paused: bool,
    is_connecting: bool,
    /// `Closed` has been reported.
    has_ended: bool,
    is_reset: bool,
    outgoing: Option<(Payload, Cursor)>,
}

pub(crate) struct Sim {
    network: Network,
    host: IpAddr,
    owner: u32,
    buffers: Vec<Vec<u8>>,
    /// Those that no `Buffer` names.
    free: Vec<u16>,
    connections: Slab<Connection>,
    listeners: Slab<Place>,
    ready: Vec<Event>,
    /// Reports of quiet sends, for when there is another event.
    quiet: Vec<Event>,
    waker: Waker,
    /// When the last `wait` would have ended by itself.
    deadline_ns: Option<u64>,
}

impl Sim {
    pub(crate) fn new(network: &Network, host: IpAddr) -> Sim {
        Sim {
            network: network.clone(),
            host,
            owner: Buffer::new_owner(),
            buffers: vec![Vec::new(); BUFFERS.into()],
            free: (0..BUFFERS).collect(),
            connections: Slab::new(),
            listeners: Slab::new(),
            ready: Vec::new(),
            quiet: Vec::new(),
            waker: Waker::simulated(),
            deadline_ns: Some(0),
        }
    }

    pub(crate) fn waker(&self) -> Waker {
        self.waker.clone()
    }

    pub(crate) fn connection_count(&self) -> usize {
        self.connections.count()
    }

    pub(crate) fn bytes(&self, buffer: &Buffer) -> &[u8] {
        &self.buffers[usize::from(buffer.index_of(self.owner))]
    }

    pub(crate) fn recycle(&mut self, buffer: Buffer) {
        let index = buffer.index_of(self.owner);
        drop(buffer);
        self.free.push(index);
    }

    pub(crate) fn listen(&mut self, listener: Listener) -> ListenerId {
        let (index, generation) = self.listeners.insert(listener.into_place());
        ListenerId { index, generation }
    }

    pub(crate) fn unlisten(&mut self, id: ListenerId) {
        self.listeners.remove(id.index, id.generation);
    }

    pub(crate) fn register(&mut self, socket: Socket) -> ConnectionId {
        self.add(socket.into_end(), false)
    }

    pub(crate) fn connect(&mut self, to: &Address) -> io::Result<ConnectionId> {
        let Address::Tcp(to) = to else { return Err(io::ErrorKind::Unsupported.into()) };
        let end = self.network.connect(self.host, *to);
        Ok(self.add(end, true))
    }

    fn add(&mut self, end: End, is_connecting: bool) -> ConnectionId {
        let connection = Connection {
            end,
            is_paused: false,
            is_connecting,
            has_ended: false,
            is_reset: false,
            outgoing: None,
        };
        let (index, generation) = self.connections.insert(connection);
        ConnectionId { index, generation }
    }

    pub(crate) fn send(&mut self, id: ConnectionId, payload: Payload) {
        self.begin_sending(id, payload, false);
    }

    pub(crate) fn send_quietly(&mut self, id: ConnectionId, payload: Payload) {
        self.begin_sending(id, payload, true);
    }

    fn begin_sending(&mut self, id: ConnectionId, payload: Payload, is_quiet: bool) {
        let Some(connection) = self.connections.find(id.index, id.generation) else { return };
        assert!(connection.outgoing.is_none(), "one send per connection at a time");
        assert!(!connection.is_connecting, "there is no connection yet");
        connection.outgoing = Some((payload, Cursor::default()));
        self.go_on_sending(id, is_quiet);
    }

    /// Sends what there is room for.
    fn go_on_sending(&mut self, id: ConnectionId, is_quiet: bool) {
        let connection = self.connections.find(id.index, id.generation).expect("it sends");
        let Some((mut payload, mut cursor)) = connection.outgoing.take() else { return };
        while !connection.is_reset && !cursor.is_done(&payload) {
            let piece = cursor.pieces(&payload).next().unwrap_or_default();
            let sent = connection.end.send(piece);
            if sent == 0 {
                connection.outgoing = Some((payload, cursor));
                return;
            }
            cursor.advance(&payload, sent);
        }
        let result = match connection.is_reset {
            true => Err(io::ErrorKind::ConnectionReset.into()),
            false => Ok(()),
        };
        payload.clear();
        let is_quiet = is_quiet && result.is_ok();
        let event = Event::Sent { connection: id, payload, result };
        if is_quiet { self.quiet.push(event) } else { self.ready.push(event) }
    }

    pub(crate) fn pause(&mut self, id: ConnectionId) {
        if let Some(connection) = self.connections.find(id.index, id.generation) {
            connection.is_paused = true;
        }
    }

    pub(crate) fn resume(&mut self, id: ConnectionId) {
        if let Some(connection) = self.connections.find(id.index, id.generation) {
            connection.is_paused = false;
        }
    }

    pub(crate) fn close(&mut self, id: ConnectionId) {
        self.connections.remove(id.index, id.generation);
    }

    /// Nothing of the kernel, so no ring either.
    pub(crate) fn socket(&mut self, _: ConnectionId) -> Option<BorrowedFd<'_>> {
        None
    }

    pub(crate) fn watch_bell(&mut self, _: ConnectionId, _: OwnedFd) {}

    pub(crate) fn take_rung(&mut self) -> Vec<ConnectionId> {
        Vec::new()
    }

    pub(crate) fn is_quiet(&self) -> bool {
        true
    }

    pub(crate) fn wait(
        &mut self,
        timeout: Option<Duration>,
        events: &mut Vec<Event>,
    ) -> io::Result<()> {
        self.deadline_ns = timeout.map(|timeout| {
            clock::monotonic_ns().saturating_add(timeout.as_nanos().min(u64::MAX.into()) as u64)
        });
        if self.waker.take() {
            events.push(Event::Woken);
        }
        for (index, generation) in self.listeners.ids() {
            let place = self.listeners.find(index, generation).expect("it was there");
            while let Some(end) = place.accept() {
                let listener = ListenerId { index, generation };
                events.push(Event::Accepted { listener, socket: Socket::simulated(end) });
            }
        }
        for (index, generation) in self.connections.ids() {
            let id = ConnectionId { index, generation };
            self.go_on_sending(id, false);
            self.receive(id, events);
        }
        self.ready.append(&mut self.quiet);
        let connections = &mut self.connections;
        let is_open = |event: &Event| match event {
            Event::Sent { connection: id, .. } => {
                connections.get(id.index, id.generation).is_some()
            }
            _ => true,
        };
        events.extend(self.ready.drain(..).filter(is_open));
        Ok(())
    }

    fn receive(&mut self, id: ConnectionId, events: &mut Vec<Event>) {
        let connection = self.connections.find(id.index, id.generation).expect("it was there");
        if !connection.wants_more() || self.free.is_empty() {
            return;
        }
        let ended = |connection: &mut Connection, error: Option<io::Error>| {
            connection.has_ended = true;
            connection.is_reset = error.is_some();
            Event::Closed { connection: id, error }
        };
        let error = || Some(io::ErrorKind::ConnectionReset.into());
        match connection.end.receive(BUFFER_BYTES) {
            Received::Nothing => {}
            Received::Open if connection.is_connecting => {
                connection.is_connecting = false;
                events.push(Event::Connected { connection: id, result: Ok(()) });
            }
            Received::Open => {}
            Received::Bytes(bytes) => {
                let index = self.free.pop().expect("just looked");
                let buffer = Buffer::named(self.owner, index, bytes.len());
                self.buffers[usize::from(index)] = bytes;
                events.push(Event::Received { connection: id, buffer });
            }
            Received::Reset if connection.is_connecting => {
                (connection.is_connecting, connection.has_ended) = (false, true);
                let result = Err(io::ErrorKind::ConnectionRefused.into());
                events.push(Event::Connected { connection: id, result });
            }
            Received::End => events.push(ended(connection, None)),
            Received::Reset => events.push(ended(connection, error())),
        }
    }

    /// When `wait` should be called next; `None`: when something else has happened.
    pub(crate) fn due_ns(&self) -> Option<u64> {
        if self.waker.is_pending() || !self.ready.is_empty() {
            return Some(0);
        }
        let places = self.listeners.ids().into_iter().filter_map(|(index, generation)| {
            self.listeners.get(index, generation).and_then(Place::next_ns)
        });
        let connections = self.connections.ids().into_iter().filter_map(|(index, generation)| {
            let connection = self.connections.get(index, generation)?;
            if connection.outgoing.is_some() && (connection.is_reset || connection.end.room() > 0) {
                return Some(0);
            }
            connection.end.next_ns().filter(|_| connection.wants_more())
        });
        places.chain(connections).chain(self.deadline_ns).min()
    }
}

impl Connection {
    fn wants_more(&self) -> bool {
        !self.is_paused && !self.has_ended
    }
}
