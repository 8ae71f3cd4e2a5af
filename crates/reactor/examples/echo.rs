//! What one backend costs per message: an echo server on one thread, and on another a generator
//! of closed-loop clients. Usage: `echo [uring|epoll] [connections] [messages] [size]`.
// What fails here fails as a whole.
#![allow(clippy::unwrap_used)]

use std::net::{SocketAddr, TcpStream};
use std::sync::mpsc;
use std::time::{Duration, Instant};

use kvasir_reactor::{
    Address, BackendChoice, Buffer, ConnectionId, Event, Listener, Options, Payload, Reactor,
    limits,
};

/// Per connection, what echoes back, and spare vectors.
#[derive(Default)]
struct Echo {
    spare: Vec<Vec<u8>>,
    /// By index: collected in this turn.
    waiting: Vec<(ConnectionId, Vec<u8>)>,
}

#[derive(Default, Debug)]
struct Counts {
    turns: u64,
    received: u64,
    received_max: usize,
    cpu: Duration,
}

fn main() {
    let mut arguments = std::env::args().skip(1);
    let backend = match arguments.next().as_deref() {
        Some("uring") => BackendChoice::Uring,
        Some("epoll") => BackendChoice::Epoll,
        _ => BackendChoice::Auto,
    };
    let mut number = |default| arguments.next().map_or(default, |text| text.parse().unwrap());
    let (connections, messages, size) = (number(50), number(1_000_000), number(64));
    limits::raise_open_files(2 * connections as u64 + 100);
    let (tell, told) = mpsc::channel();
    let server = std::thread::spawn(move || serve(backend, connections, |a| tell.send(a).unwrap()));
    let start = Instant::now();
    generate(told.recv().unwrap(), connections, messages, size);
    let elapsed = start.elapsed();
    let counts = server.join().unwrap();
    let per_message = counts.cpu.as_nanos() as f64 / messages as f64;
    println!(
        "{backend:?} connections={connections} size={size} messages/s={:.0} server_cpu_ns={:.0} \
         received_per_turn={:.1} most={}",
        messages as f64 / elapsed.as_secs_f64(),
        per_message,
        counts.received as f64 / counts.turns as f64,
        counts.received_max,
    );
}

fn serve(backend: BackendChoice, connections: usize, tell: impl FnOnce(SocketAddr)) -> Counts {
    let mut reactor = Reactor::new(&Options { backend, ..Options::default() }).unwrap();
    let listener = Listener::tcp("127.0.0.1:0".parse().unwrap(), 4096).unwrap();
    let Address::Tcp(address) = listener.local().unwrap() else { unreachable!() };
    reactor.listen(listener);
    tell(address);
    let (mut echo, mut counts, mut events) = (Echo::default(), Counts::default(), Vec::new());
    let mut closed = 0;
    while closed < connections {
        reactor.wait(None, &mut events).unwrap();
        counts.turns += 1;
        for event in events.drain(..) {
            match event {
                Event::Accepted { socket, .. } => {
                    socket.set_nodelay().unwrap();
                    reactor.register(socket);
                }
                Event::Received { connection, buffer } => {
                    counts.received += 1;
                    echo.collect(&mut reactor, connection, buffer);
                }
                Event::Sent { payload, .. } => echo.spare.push(payload.bytes),
                Event::Closed { connection, .. } => {
                    closed += 1;
                    reactor.close(connection);
                }
                Event::AcceptFailed { error, .. } => panic!("{error}"),
                Event::Connected { .. } | Event::Woken => {}
            }
        }
        counts.received_max = counts.received_max.max(echo.waiting.len());
        for (connection, bytes) in echo.waiting.drain(..) {
            reactor.send(connection, Payload::from(bytes));
        }
    }
    counts.cpu = limits::thread_cpu_time();
    counts
}

impl Echo {
    fn collect(&mut self, reactor: &mut Reactor, connection: ConnectionId, buffer: Buffer) {
        let mut bytes = self.spare.pop().unwrap_or_default();
        bytes.extend_from_slice(reactor.bytes(&buffer));
        reactor.recycle(buffer);
        self.waiting.push((connection, bytes));
    }
}

/// Each connection sends a message when the echo of the one before is complete.
fn generate(address: SocketAddr, connections: usize, messages: usize, size: usize) {
    let options = Options { backend: BackendChoice::Epoll, ..Options::default() };
    let mut reactor = Reactor::new(&options).unwrap();
    let mut missing = vec![size; connections];
    let mut started = connections.min(messages);
    for _ in 0..connections {
        let stream = TcpStream::connect(address).unwrap();
        stream.set_nodelay(true).unwrap();
        let id = reactor.register(stream.into());
        reactor.send(id, Payload::from(vec![b'x'; size]));
    }
    let (mut done, mut events) = (0, Vec::new());
    let mut spare = Vec::new();
    while done < messages {
        reactor.wait(None, &mut events).unwrap();
        for event in events.drain(..) {
            match event {
                Event::Received { connection, buffer } => {
                    let missing = &mut missing[connection.index as usize];
                    *missing -= buffer.size();
                    reactor.recycle(buffer);
                    if *missing == 0 {
                        *missing = size;
                        done += 1;
                        if started < messages {
                            started += 1;
                            let mut bytes: Vec<u8> = spare.pop().unwrap_or_default();
                            bytes.resize(size, b'x');
                            reactor.send(connection, Payload::from(bytes));
                        }
                    }
                }
                Event::Sent { payload, .. } => spare.push(payload.bytes),
                other => panic!("{other:?}"),
            }
        }
    }
}
