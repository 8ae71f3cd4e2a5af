//! A worker as small as can be: it collects what happens and can echo.

use std::collections::HashMap;
use std::net::{IpAddr, SocketAddr, TcpStream};
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

use kvasir_reactor::{
    Address, BackendChoice, Buffer, ConnectionId, Event, Listener, ListenerId, Options, Payload,
    Reactor, Socket,
};

/// Far more than any test needs; ends one that hangs.
pub const PATIENCE: Duration = Duration::from_secs(60);

#[derive(Default)]
pub struct Peer {
    pub received: Vec<u8>,
    pub sent: Vec<Result<(), String>>,
    pub closed: Vec<Option<String>>,
    pub connected: Vec<Result<(), String>>,
    /// Echo: received while a send was on its way.
    waiting: Vec<u8>,
    sending: bool,
}

pub struct Worker {
    pub reactor: Reactor,
    pub address: SocketAddr,
    pub listener: ListenerId,
    pub peers: HashMap<ConnectionId, Peer>,
    /// In the order of acceptance.
    pub ids: Vec<ConnectionId>,
    pub woken: usize,
    pub accept_failures: usize,
    pub echo: bool,
    /// Keep received buffers instead of recycling them.
    pub hold: bool,
    pub held: Vec<Buffer>,
    pub closed_by_us: Vec<ConnectionId>,
    pub send_buffer_size: Option<usize>,
}

impl Worker {
    pub fn new(backend: BackendChoice) -> Worker {
        Worker::with(Options { backend, ..Options::default() })
    }

    pub fn with(options: Options) -> Worker {
        let mut reactor = Reactor::new(&options).unwrap();
        let listener = Listener::tcp("127.0.0.1:0".parse().unwrap(), 4096).unwrap();
        let Address::Tcp(address) = listener.local().unwrap() else { panic!("not TCP") };
        let listener = reactor.listen(listener);
        Worker {
            reactor,
            address,
            listener,
            peers: HashMap::new(),
            ids: Vec::new(),
            woken: 0,
            accept_failures: 0,
            echo: false,
            hold: false,
            held: Vec::new(),
            closed_by_us: Vec::new(),
            send_buffer_size: None,
        }
    }

    /// A connection over TCP, seen from both sides.
    pub fn connect(&mut self) -> (TcpStream, ConnectionId) {
        let accepted = self.ids.len();
        let stream = TcpStream::connect(self.address).unwrap();
        self.run_until(|worker| worker.ids.len() > accepted);
        (stream, self.ids[accepted])
    }

    /// A connection that was not accepted by a listener.
    pub fn pair(&mut self) -> (UnixStream, ConnectionId) {
        let (ours, theirs) = UnixStream::pair().unwrap();
        let id = self.register(ours.into());
        (theirs, id)
    }

    pub fn register(&mut self, socket: Socket) -> ConnectionId {
        if let Some(size) = self.send_buffer_size {
            socket.set_send_buffer(size).unwrap();
        }
        socket.set_nodelay().unwrap();
        let id = self.reactor.register(socket);
        assert!(self.peers.insert(id, Peer::default()).is_none(), "an id came twice");
        self.ids.push(id);
        id
    }

    /// Begins a connection of our own.
    pub fn begin(&mut self, to: &Address, source: Option<IpAddr>) -> std::io::Result<ConnectionId> {
        let id = self.reactor.connect(to, source)?;
        assert!(self.peers.insert(id, Peer::default()).is_none(), "an id came twice");
        Ok(id)
    }

    /// Takes turns until the condition holds.
    pub fn run_until(&mut self, mut condition: impl FnMut(&Worker) -> bool) {
        let start = Instant::now();
        while !condition(self) {
            self.turn(Some(Duration::from_secs(1)));
            assert!(start.elapsed() < PATIENCE, "the condition never came true");
        }
    }

    /// One turn with all that belongs to it; how many events there were.
    pub fn turn(&mut self, timeout: Option<Duration>) -> usize {
        let mut events = Vec::new();
        self.reactor.wait(timeout, &mut events).unwrap();
        let count = events.len();
        for event in events {
            self.on_event(event);
        }
        count
    }

    fn on_event(&mut self, event: Event) {
        match event {
            Event::Accepted { listener, socket } => {
                assert_eq!(listener, self.listener);
                self.register(socket);
            }
            Event::AcceptFailed { .. } => self.accept_failures += 1,
            Event::Woken => self.woken += 1,
            Event::Connected { connection, result } => {
                let peer = self.peers.get_mut(&connection).unwrap();
                peer.connected.push(result.map_err(|error| error.to_string()));
                self.assert_open(connection);
            }
            Event::Received { connection, buffer } => self.on_received(connection, buffer),
            Event::Closed { connection, error } => {
                let peer = self.peers.get_mut(&connection).unwrap();
                peer.closed.push(error.map(|error| error.to_string()));
                self.assert_open(connection);
            }
            Event::Sent { connection, payload, result } => {
                assert_eq!(payload.size(), 0);
                let peer = self.peers.get_mut(&connection).unwrap();
                peer.sent.push(result.map_err(|error| error.to_string()));
                peer.sending = false;
                self.assert_open(connection);
                self.echo_waiting(connection);
            }
        }
    }

    fn assert_open(&self, id: ConnectionId) {
        assert!(!self.closed_by_us.contains(&id), "an event of a closed connection");
    }

    fn on_received(&mut self, id: ConnectionId, buffer: Buffer) {
        self.assert_open(id);
        let bytes = self.reactor.bytes(&buffer);
        assert!(!bytes.is_empty());
        let peer = self.peers.get_mut(&id).unwrap();
        assert!(peer.closed.is_empty(), "received after the end");
        if self.echo {
            peer.waiting.extend_from_slice(bytes);
        }
        peer.received.extend_from_slice(bytes);
        if self.hold {
            self.held.push(buffer);
        } else {
            self.reactor.recycle(buffer);
        }
        self.echo_waiting(id);
    }

    fn echo_waiting(&mut self, id: ConnectionId) {
        let peer = self.peers.get_mut(&id).unwrap();
        if !peer.sending && !peer.waiting.is_empty() {
            peer.sending = true;
            let payload = Payload::from(std::mem::take(&mut peer.waiting));
            self.reactor.send_quietly(id, payload);
        }
    }

    pub fn release_held(&mut self) {
        for buffer in std::mem::take(&mut self.held) {
            self.reactor.recycle(buffer);
        }
    }

    pub fn close(&mut self, id: ConnectionId) {
        self.reactor.close(id);
        self.closed_by_us.push(id);
    }
}

/// Bytes in which every position tells where it is.
pub fn pattern(size: usize, seed: u32) -> Vec<u8> {
    let word = |index: usize| (index as u32).wrapping_mul(2_654_435_761).wrapping_add(seed);
    (0..size.div_ceil(4)).flat_map(|index| word(index).to_le_bytes()).take(size).collect()
}
