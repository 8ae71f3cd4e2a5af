//! Accepting, ids and their reuse, waking.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::os::unix::net::UnixStream;
use std::sync::atomic::AtomicUsize;
use std::sync::atomic::Ordering::{Acquire, Release};
use std::time::{Duration, Instant};

use crate::harness::{Peer, Worker, pattern};
use kvasir_reactor::{Address, BackendChoice, ConnectionId, Listener, Options, Payload};

crate::for_each_backend! {
    two_thousand_connections_are_echoed
    a_unix_socket_is_echoed
    a_crowd_of_new_connections_holds_up_nobody
    a_closed_listener_accepts_no_more
    a_connection_knows_both_addresses
    stale_ids_are_ignored_after_slot_reuse
    another_thread_can_wake
    no_wake_up_is_lost_after_a_busy_turn
    an_idle_reactor_blocks
    dropping_a_busy_reactor_ends_its_connections
    accepting_goes_on_after_running_out_of_descriptors
    an_overflow_of_the_completion_queue_loses_nothing
}

fn two_thousand_connections_are_echoed(backend: BackendChoice) {
    const COUNT: usize = 2000;
    kvasir_reactor::limits::raise_open_files(3 * COUNT as u64);
    // More connections than the rings have entries, and fewer buffers.
    let options = Options { backend, ring_entries: 64, buffer_count: 32, ..Options::default() };
    let mut worker = Worker::with(options);
    worker.echo = true;
    let address = worker.address;
    let client = std::thread::spawn(move || {
        let mut streams: Vec<_> =
            (0..COUNT).map(|_| TcpStream::connect(address).unwrap()).collect();
        for round in 0..3 {
            for (index, stream) in streams.iter_mut().enumerate() {
                stream.write_all(&pattern(100, (index + round) as u32)).unwrap();
            }
            for (index, stream) in streams.iter_mut().enumerate() {
                let mut reply = [0; 100];
                stream.read_exact(&mut reply).unwrap();
                assert_eq!(reply[..], pattern(100, (index + round) as u32));
            }
        }
    });
    worker.run_until(|worker| {
        worker.ids.len() == COUNT && worker.peers.values().all(|peer| !peer.closed.is_empty())
    });
    client.join().unwrap();
    assert!(worker.ids.iter().all(|id| (id.index as usize) < COUNT), "indices are dense");
    assert!(worker.peers.values().all(|peer| peer.received.len() == 300));
    for id in worker.ids.clone() {
        worker.close(id);
    }
    worker.run_until(|worker| worker.reactor.connection_count() == 0);
}

fn a_unix_socket_is_echoed(backend: BackendChoice) {
    let name = format!("kvasir-reactor-{backend:?}-{}", std::process::id());
    let path = std::env::temp_dir().join(name);
    let mut worker = Worker::new(backend);
    worker.reactor.unlisten(worker.listener);
    worker.listener = worker.reactor.listen(Listener::unix(&path, 16, None).unwrap());
    worker.echo = true;
    let mut stream = UnixStream::connect(&path).unwrap();
    let bytes = pattern(100_000, 1);
    let client = std::thread::spawn({
        let (bytes, mut stream) = (bytes.clone(), stream.try_clone().unwrap());
        move || stream.write_all(&bytes).unwrap()
    });
    let reader = std::thread::spawn(move || {
        let mut reply = vec![0; 100_000];
        stream.read_exact(&mut reply).unwrap();
        reply
    });
    worker.run_until(|worker| worker.peers.values().any(|peer| !peer.closed.is_empty()));
    client.join().unwrap();
    assert!(reader.join().unwrap() == bytes);
    std::fs::remove_file(path).unwrap();
}

fn a_crowd_of_new_connections_holds_up_nobody(backend: BackendChoice) {
    const CROWD: usize = 100;
    let mut worker = Worker::new(backend);
    let (mut stream, id) = worker.connect();
    let _crowd: Vec<_> = (0..CROWD).map(|_| TcpStream::connect(worker.address).unwrap()).collect();
    stream.write_all(b"PING").unwrap();
    let mut most = 0;
    while worker.ids.len() <= CROWD {
        let before = worker.ids.len();
        worker.turn(None);
        most = most.max(worker.ids.len() - before);
        assert_eq!(worker.peers[&id].received, b"PING");
    }
    assert!(most <= CROWD / 8, "{most} at once");
}

fn a_closed_listener_accepts_no_more(backend: BackendChoice) {
    let mut worker = Worker::new(backend);
    let (_stream, _) = worker.connect();
    worker.reactor.unlisten(worker.listener);
    worker.reactor.unlisten(worker.listener);
    // The kernel refuses as soon as the last descriptor of the listener is closed.
    let start = Instant::now();
    while TcpStream::connect(worker.address).is_ok() {
        worker.turn(Some(Duration::ZERO));
        assert!(start.elapsed() < Duration::from_secs(60));
    }
    assert_eq!(worker.ids.len(), 1);
}

fn a_connection_knows_both_addresses(backend: BackendChoice) {
    let mut worker = Worker::new(backend);
    let stream = TcpStream::connect(worker.address).unwrap();
    let mut events = Vec::new();
    while events.is_empty() {
        worker.reactor.wait(None, &mut events).unwrap();
    }
    let Some(kvasir_reactor::Event::Accepted { socket, .. }) = events.pop() else { panic!() };
    assert!(!socket.is_unix());
    assert_eq!(socket.peer().unwrap(), Address::Tcp(stream.local_addr().unwrap()));
    assert_eq!(socket.local().unwrap(), Address::Tcp(stream.peer_addr().unwrap()));
    fn is_send<T: Send>(_: &T) {}
    is_send(&socket);
}

fn stale_ids_are_ignored_after_slot_reuse(backend: BackendChoice) {
    let mut worker = Worker::new(backend);
    let (_first, stale) = worker.connect();
    worker.close(stale);
    worker.run_until(|worker| worker.reactor.connection_count() == 0);
    let (mut second, id) = worker.connect();
    assert_eq!((id.index, id.generation), (stale.index, stale.generation + 1));
    let never = ConnectionId { index: 1000, generation: 0 };
    for stale in [stale, never] {
        worker.reactor.send(stale, Payload::from(b"wrong".to_vec()));
        worker.reactor.pause(stale);
        worker.reactor.resume(stale);
        worker.reactor.close(stale);
    }
    worker.reactor.send(id, Payload::from(b"right".to_vec()));
    second.write_all(b"hello").unwrap();
    worker.run_until(|worker| worker.peers[&id].received == b"hello");
    worker.close(id);
    worker.run_until(|worker| worker.reactor.connection_count() == 0);
    let mut reply = Vec::new();
    second.read_to_end(&mut reply).unwrap();
    assert_eq!(reply, b"right");
}

fn another_thread_can_wake(backend: BackendChoice) {
    let mut worker = Worker::new(backend);
    for round in 1..=100 {
        let waker = worker.reactor.waker();
        let thread = std::thread::spawn(move || {
            for _ in 0..10 {
                waker.wake();
            }
        });
        let before = worker.woken;
        while worker.woken == before {
            worker.turn(None);
        }
        thread.join().unwrap();
        // Whatever was set after the event is one more.
        worker.turn(Some(Duration::ZERO));
        assert!(worker.woken <= 11 * round);
    }
    // Coalesced: many wakes before a turn are one event.
    worker.turn(Some(Duration::ZERO));
    let before = worker.woken;
    (0..1000).for_each(|_| worker.reactor.waker().wake());
    worker.turn(None);
    assert_eq!(worker.woken, before + 1);
    assert_eq!(worker.turn(Some(Duration::ZERO)), 0);
}

/// After a turn of several events the next one waits a moment for as many again. Somebody wakes it
/// before, during or after that moment.
fn no_wake_up_is_lost_after_a_busy_turn(backend: BackendChoice) {
    const ROUNDS: usize = 5000;
    const CLIENTS: usize = 4;
    const TOO_LATE: Duration = Duration::from_secs(10);
    let mut worker = Worker::new(backend);
    worker.echo = true;
    let mut streams: Vec<_> = (0..CLIENTS).map(|_| worker.connect().0).collect();
    let waker = worker.reactor.waker();
    let woken = AtomicUsize::new(0);
    std::thread::scope(|scope| {
        let waking = scope.spawn(|| {
            for round in 1..=ROUNDS {
                streams.iter_mut().for_each(|stream| stream.write_all(b"PING").unwrap());
                streams.iter_mut().for_each(|stream| stream.read_exact(&mut [0; 4]).unwrap());
                let delay = Duration::from_micros(round as u64 * 7 % 120);
                let start = Instant::now();
                while start.elapsed() < delay {
                    std::hint::spin_loop();
                }
                waker.wake();
                while woken.load(Acquire) < round {
                    assert!(start.elapsed() < TOO_LATE, "it sleeps on");
                    std::thread::yield_now();
                }
            }
        });
        while worker.woken < ROUNDS && !waking.is_finished() {
            worker.turn(Some(2 * TOO_LATE));
            woken.store(worker.woken, Release);
        }
    });
}

fn an_idle_reactor_blocks(backend: BackendChoice) {
    let mut worker = Worker::new(backend);
    let (_stream, _) = worker.connect();
    worker.turn(Some(Duration::ZERO));
    let start = Instant::now();
    let mut turns = 0;
    while start.elapsed() < Duration::from_millis(50) {
        assert_eq!(worker.turn(Some(Duration::from_millis(50))), 0);
        turns += 1;
    }
    assert!(turns <= 3, "{turns} turns in 50 ms without an event");
}

fn dropping_a_busy_reactor_ends_its_connections(backend: BackendChoice) {
    let mut worker = Worker::new(backend);
    let (mut stream, id) = worker.connect();
    worker.reactor.send(id, Payload::from(vec![7; 32 << 20]));
    worker.turn(Some(Duration::ZERO));
    drop(worker);
    let mut sink = Vec::new();
    // Orderly end or reset, both will do.
    let _ = stream.read_to_end(&mut sink);
    assert!(sink.iter().all(|&byte| byte == 7) && sink.len() < 32 << 20);
}

/// The limit is the whole process's, so the body runs in one of its own.
fn accepting_goes_on_after_running_out_of_descriptors(backend: BackendChoice) {
    const CHILD: &str = "KVASIR_TEST_DESCRIPTORS_CHILD";
    if std::env::var_os(CHILD).is_some() {
        return run_out_of_descriptors(backend);
    }
    let backend = format!("{backend:?}").to_lowercase();
    let name = "accepting_goes_on_after_running_out_of_descriptors";
    let name = format!("listening::{backend}::{name}");
    let mut command = std::process::Command::new(std::env::current_exe().unwrap());
    let output = command.args([&name, "--exact", "--nocapture"]).env(CHILD, "1").output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout) + String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && text.contains("1 passed"), "{text}");
}

fn run_out_of_descriptors(backend: BackendChoice) {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    const CLIENTS: usize = 10;
    const FREE: u64 = 3;
    let mut worker = Worker::new(backend);
    let connect = |_| TcpStream::connect(worker.address).unwrap();
    let _clients: Vec<_> = (0..CLIENTS).map(connect).collect();
    let next = std::fs::File::open("/dev/null").map(|f| std::os::fd::AsRawFd::as_raw_fd(&f) as u64);
    let next = next.unwrap();
    let limit = Rlimit { current: Some(next + FREE), ..getrlimit(Resource::Nofile) };
    setrlimit(Resource::Nofile, limit).unwrap();

    let start = Instant::now();
    let mut turns = 0;
    while worker.accept_failures < 3 {
        worker.turn(None);
        turns += 1;
    }
    assert_eq!(worker.ids.len(), FREE as usize);
    assert!(start.elapsed() >= Duration::from_millis(200) && turns < 20, "it spins: {turns}");

    let mut closed = 0;
    while worker.ids.len() < CLIENTS {
        for id in worker.ids.clone().into_iter().skip(closed) {
            worker.close(id);
            closed += 1;
        }
        worker.turn(None);
    }
}

fn an_overflow_of_the_completion_queue_loses_nothing(backend: BackendChoice) {
    // The completion queue has 8 entries; each turn has hundreds of completions.
    let options = Options { backend, ring_entries: 2, buffer_count: 1024, ..Options::default() };
    let mut worker = Worker::with(options);
    let mut connections: Vec<_> = (0..300).map(|_| worker.pair()).collect();
    for round in 1..=10 {
        for (index, (stream, id)) in connections.iter_mut().enumerate() {
            stream.write_all(&pattern(50, index as u32)).unwrap();
            worker.reactor.send(*id, Payload::from(pattern(60, index as u32)));
        }
        worker.reactor.waker().wake();
        worker.run_until(|worker| {
            let done = |peer: &Peer| peer.received.len() == 50 * round && peer.sent.len() == round;
            worker.peers.values().all(done) && worker.woken == round
        });
        for (index, (stream, _)) in connections.iter_mut().enumerate() {
            let mut reply = [0; 60];
            stream.read_exact(&mut reply).unwrap();
            assert_eq!(reply[..], pattern(60, index as u32));
        }
    }
    // The listener has survived it, too.
    worker.connect();
}
