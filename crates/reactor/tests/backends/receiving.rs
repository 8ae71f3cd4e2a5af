//! Receiving: order, end, reset, back-pressure, and running out of buffers.

use std::io::{ErrorKind, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::sync::mpsc::Receiver;
use std::time::{Duration, Instant};

use crate::harness::{PATIENCE, Worker, pattern};
use kvasir_reactor::{
    Address, BackendChoice, Event, Listener, Options, Payload, Reactor, Socket, Waker,
};

crate::for_each_backend! {
    the_end_comes_once_and_behind_the_data
    a_reset_is_reported_once
    an_end_right_behind_data_is_seen
    an_end_that_races_with_its_data_is_seen
    many_that_fall_silent_at_once_are_still_heard
    a_paused_connection_receives_nothing
    pausing_back_and_forth_loses_nothing
    the_end_of_a_paused_connection_comes_after_resume
    running_out_of_buffers_loses_nothing
    one_buffer_serves_many
}

fn the_end_comes_once_and_behind_the_data(backend: BackendChoice) {
    let mut worker = Worker::new(backend);
    let (mut stream, id) = worker.connect();
    let bytes = pattern(300_000, 1);
    let client = std::thread::spawn({
        let bytes = bytes.clone();
        move || {
            stream.write_all(&bytes).unwrap();
            stream.shutdown(Shutdown::Write).unwrap();
            stream
        }
    });
    worker.run_until(|worker| !worker.peers[&id].closed.is_empty());
    assert!(worker.peers[&id].received == bytes);
    drop(client.join().unwrap());
    // After the end one can still send; the second end is no news.
    worker.reactor.send(id, Payload::from(b"bye".to_vec()));
    worker.run_until(|worker| !worker.peers[&id].sent.is_empty());
    worker.turn(Some(Duration::from_millis(10)));
    assert_eq!(worker.peers[&id].closed, [None]);
}

fn reset(stream: TcpStream) {
    reset_when_closed(&stream);
}

/// Closing without lingering sends RST.
fn reset_when_closed(stream: &TcpStream) {
    rustix::net::sockopt::set_socket_linger(stream, Some(Duration::ZERO)).unwrap();
}

fn a_reset_is_reported_once(backend: BackendChoice) {
    let mut worker = Worker::new(backend);
    let (stream, id) = worker.connect();
    reset(stream);
    worker.run_until(|worker| !worker.peers[&id].closed.is_empty());
    worker.turn(Some(Duration::from_millis(10)));
    let closed = &worker.peers[&id].closed;
    assert!(closed.len() == 1 && closed[0].as_ref().unwrap().contains("reset"), "{closed:?}");

    // The same while a send is on its way.
    let (stream, id) = worker.connect();
    worker.reactor.send(id, Payload::from(vec![0; 32 << 20]));
    worker.turn(Some(Duration::ZERO));
    reset(stream);
    let ended = |worker: &Worker| {
        let peer = &worker.peers[&id];
        !peer.closed.is_empty() && !peer.sent.is_empty()
    };
    worker.run_until(ended);
    worker.turn(Some(Duration::from_millis(10)));
    let peer = &worker.peers[&id];
    assert!(peer.sent.len() == 1 && peer.sent[0].is_err() && peer.closed.len() == 1);
}

/// Both are there before the reactor looks: one wake-up is all that it gets for them.
fn an_end_right_behind_data_is_seen(backend: BackendChoice) {
    let mut worker = Worker::new(backend);
    let together = Duration::from_millis(20);
    for end in [reset, drop::<TcpStream>] {
        let (mut stream, id) = worker.connect();
        worker.turn(Some(Duration::ZERO));
        stream.write_all(b"PI").unwrap();
        end(stream);
        std::thread::sleep(together);
        worker.run_until(|worker| !worker.peers[&id].closed.is_empty());
        assert_eq!(worker.peers[&id].received, b"PI");
    }
    let (mut stream, id) = worker.pair();
    worker.turn(Some(Duration::ZERO));
    stream.write_all(b"PI").unwrap();
    drop(stream);
    std::thread::sleep(together);
    worker.run_until(|worker| !worker.peers[&id].closed.is_empty());
    assert_eq!(worker.peers[&id].received, b"PI");
}

/// Connections that are reset before, while or after their data is received, by a reactor that did
/// not accept them and is short of processor: of 100,000 such ends io_uring loses a few.
fn an_end_that_races_with_its_data_is_seen(backend: BackendChoice) {
    const COUNT: usize = 50_000;
    let mut reactor = Reactor::new(&Options { backend, ..Options::default() }).unwrap();
    let (sockets, address) = accept_elsewhere(backend, reactor.waker());
    for _ in 0..4 {
        std::thread::spawn(move || come_and_go(address));
    }
    let (mut registered, mut ended, mut events) = (0, 0, Vec::new());
    let mut last = Instant::now();
    while ended < COUNT {
        reactor.wait(Some(Duration::from_millis(10)), &mut events).unwrap();
        for event in events.drain(..) {
            match event {
                Event::Received { buffer, .. } => reactor.recycle(buffer),
                Event::Closed { connection, .. } => {
                    reactor.close(connection);
                    (ended, last) = (ended + 1, Instant::now());
                }
                _ => {}
            }
        }
        for socket in sockets.try_iter().take(COUNT - registered) {
            // The system drops a reset when it is overrun.
            socket.set_keepalive(1).unwrap_or_default();
            reactor.register(socket);
            registered += 1;
        }
        assert!(last.elapsed() < PATIENCE, "{ended} of {registered} have ended");
    }
}

/// A thread whose reactor accepts until nobody takes what it accepted.
fn accept_elsewhere(backend: BackendChoice, waker: Waker) -> (Receiver<Socket>, SocketAddr) {
    let listener = Listener::tcp("127.0.0.1:0".parse().unwrap(), 4096).unwrap();
    let Address::Tcp(address) = listener.local().unwrap() else { panic!("not TCP") };
    let (to, sockets) = std::sync::mpsc::channel();
    std::thread::spawn(move || {
        let mut reactor = Reactor::new(&Options { backend, ..Options::default() }).unwrap();
        reactor.listen(listener);
        let (mut events, mut is_wanted) = (Vec::new(), true);
        while is_wanted {
            reactor.wait(None, &mut events).unwrap();
            for event in events.drain(..) {
                if let Event::Accepted { socket, .. } = event {
                    is_wanted &= to.send(socket).is_ok();
                }
            }
            waker.wake();
        }
    });
    (sockets, address)
}

/// Until nobody listens.
fn come_and_go(address: SocketAddr) {
    let _ = rustix::process::nice(19);
    for turn in 0.. {
        match TcpStream::connect(address) {
            Ok(mut stream) => {
                reset_when_closed(&stream);
                // The other side may have ended it.
                let _ = stream.write(if turn % 2 == 0 { b"PI" } else { b"" });
            }
            Err(error) if error.kind() == ErrorKind::ConnectionRefused => return,
            Err(_) => {}
        }
    }
}

/// More than are looked at in one turn.
fn many_that_fall_silent_at_once_are_still_heard(backend: BackendChoice) {
    let mut worker = Worker::new(backend);
    let mut peers: Vec<_> = (0..300).map(|_| worker.pair()).collect();
    for word in [b"1", b"2"] {
        peers.iter_mut().for_each(|(stream, _)| stream.write_all(word).unwrap());
        worker.run_until(|worker| worker.peers.values().all(|peer| peer.received.ends_with(word)));
        let start = Instant::now();
        while start.elapsed() < Duration::from_millis(300) {
            worker.turn(Some(Duration::from_millis(10)));
        }
    }
    drop(peers);
    worker.run_until(|worker| worker.peers.values().all(|peer| peer.closed.len() == 1));
    assert!(worker.peers.values().all(|peer| peer.received == b"12"));
}

fn a_paused_connection_receives_nothing(backend: BackendChoice) {
    let mut worker = Worker::new(backend);
    let (mut stream, id) = worker.connect();
    let (mut other, other_id) = worker.connect();
    worker.reactor.pause(id);
    // A turn in which the other receives is one in which the kernel has seen the pause.
    other.write_all(b"1").unwrap();
    worker.run_until(|worker| worker.peers[&other_id].received == b"1");
    worker.turn(Some(Duration::ZERO));
    stream.write_all(b"hello").unwrap();
    other.write_all(b"2").unwrap();
    worker.run_until(|worker| worker.peers[&other_id].received == b"12");
    worker.turn(Some(Duration::ZERO));
    assert_eq!(worker.peers[&id].received, b"");
    worker.reactor.resume(id);
    worker.run_until(|worker| worker.peers[&id].received == b"hello");
}

fn pausing_back_and_forth_loses_nothing(backend: BackendChoice) {
    let mut worker = Worker::new(backend);
    let (mut stream, id) = worker.connect();
    let bytes = pattern(4 << 20, 3);
    let client = std::thread::spawn({
        let bytes = bytes.clone();
        move || stream.write_all(&bytes).unwrap()
    });
    let mut turn = 0;
    while worker.peers[&id].closed.is_empty() {
        turn += 1;
        // All orders of the two calls within one turn, and pauses longer than one.
        match turn % 5 {
            0 => worker.reactor.pause(id),
            1 => worker.reactor.resume(id),
            2 => {
                worker.reactor.pause(id);
                worker.reactor.resume(id);
            }
            3 => {
                worker.reactor.resume(id);
                worker.reactor.pause(id);
                worker.reactor.pause(id);
            }
            _ => worker.reactor.resume(id),
        }
        worker.turn(Some(Duration::from_millis(1)));
    }
    client.join().unwrap();
    assert!(worker.peers[&id].received == bytes);
}

fn the_end_of_a_paused_connection_comes_after_resume(backend: BackendChoice) {
    let mut worker = Worker::new(backend);
    let (mut stream, id) = worker.pair();
    worker.reactor.pause(id);
    worker.turn(Some(Duration::ZERO));
    stream.write_all(b"last words").unwrap();
    drop(stream);
    worker.turn(Some(Duration::from_millis(10)));
    worker.reactor.resume(id);
    worker.run_until(|worker| !worker.peers[&id].closed.is_empty());
    assert_eq!(worker.peers[&id].received, b"last words");
}

fn running_out_of_buffers_loses_nothing(backend: BackendChoice) {
    const SENDERS: usize = 50;
    const SIZE: usize = 20_000;
    let options = Options { backend, buffer_count: 4, buffer_size: 1024, ..Options::default() };
    let mut worker = Worker::with(options);
    worker.hold = true;
    let connections: Vec<_> = (0..SENDERS).map(|_| worker.pair()).collect();
    let ids: Vec<_> = connections.iter().map(|&(_, id)| id).collect();
    for (index, (mut stream, _)) in connections.into_iter().enumerate() {
        // Fits into the socket's buffer, so this does not block; then the stream ends.
        stream.write_all(&pattern(SIZE, index as u32)).unwrap();
    }
    worker.run_until(|worker| worker.held.len() == 4);
    for _ in 0..10 {
        // Nothing comes while all buffers are out, and nothing spins.
        assert_eq!(worker.turn(Some(Duration::from_millis(2))), 0);
    }
    while ids.iter().any(|id| worker.peers[id].closed.is_empty()) {
        worker.release_held();
        worker.turn(Some(Duration::from_secs(1)));
        assert!(worker.held.len() <= 4);
    }
    for (index, id) in ids.iter().enumerate() {
        assert!(worker.peers[id].received == pattern(SIZE, index as u32), "connection {index}");
    }
}

fn one_buffer_serves_many(backend: BackendChoice) {
    let options = Options { backend, buffer_count: 1, buffer_size: 64, ..Options::default() };
    let mut worker = Worker::with(options);
    let mut connections: Vec<_> = (0..200).map(|_| worker.pair()).collect();
    for round in 1..=5 {
        for (index, (stream, _)) in connections.iter_mut().enumerate() {
            stream.write_all(&pattern(100, index as u32)).unwrap();
        }
        worker.run_until(|worker| worker.peers.values().all(|p| p.received.len() == 100 * round));
    }
    for (index, (_, id)) in connections.iter().enumerate() {
        assert!(worker.peers[id].received == pattern(100, index as u32).repeat(5));
    }
}
