//! Rings: both ways through shared memory, waking, ends, and clients that mean harm.

use std::fs::File;
use std::io::{Read, Write};
use std::os::fd::AsFd;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

use crate::harness::{PATIENCE, Worker, pattern};
use kvasir_reactor::ring::Ring;
use kvasir_reactor::ring::client::{Descriptors, Stream, receive};
use kvasir_reactor::{BackendChoice, ConnectionId, Options, Payload};

crate::for_each_backend! {
    what_goes_in_comes_out_both_ways
    who_sleeps_is_woken
    what_stood_in_the_ring_comes_before_the_end
    the_end_of_the_server_is_seen_at_once
    a_paused_ring_brings_nothing
    bytes_beside_the_ring_end_it
    indices_that_cannot_be_end_the_connection_alone
    a_full_bell_holds_nobody_up
    rings_come_and_go_without_a_trace
    a_quiet_send_that_takes_its_time_ends_a_wait
    who_is_gone_has_read_all_it_will
    the_memory_of_a_ring_is_given_back_though_its_file_is_kept
    who_spins_does_not_sleep
}

/// A connection with a ring, its client, and what that could do with the memory.
fn open(worker: &mut Worker, ring_bytes: u32) -> (Stream, ConnectionId, File) {
    let (socket, id, descriptors) = descriptors(worker, ring_bytes);
    let memory = File::from(descriptors.memory.try_clone().unwrap());
    (Stream::new(socket, descriptors).unwrap(), id, memory)
}

fn descriptors(worker: &mut Worker, ring_bytes: u32) -> (UnixStream, ConnectionId, Descriptors) {
    let (socket, id) = worker.pair();
    let ring = Ring::new(ring_bytes).unwrap();
    worker.reactor.open_ring(id, ring, Payload::from(b":1\r\n".to_vec()));
    let mut reply = [0; 16];
    let (count, descriptors) = receive(&socket, &mut reply).unwrap();
    assert_eq!(&reply[..count], b":1\r\n");
    worker.run_until(|worker| worker.peers[&id].sent == [Ok(())]);
    (socket, id, descriptors.expect("they come with the reply"))
}

fn what_goes_in_comes_out_both_ways(backend: BackendChoice) {
    let mut worker = Worker::new(backend);
    worker.echo = true;
    for (ring_bytes, size) in [(4096, 300_000), (1 << 20, 3_000_000), (1 << 16, 10)] {
        let (mut stream, id, _) = open(&mut worker, ring_bytes);
        stream.set_timeout(Some(PATIENCE));
        let bytes = pattern(size, ring_bytes);
        let sent = bytes.clone();
        let client = std::thread::spawn(move || {
            let mut got = Vec::new();
            for piece in sent.chunks(ring_bytes as usize / 2) {
                stream.write_all(piece).unwrap();
                let mut echo = vec![0; piece.len()];
                stream.read_exact(&mut echo).unwrap();
                got.extend(echo);
            }
            (got, stream)
        });
        worker.run_until(|worker| worker.peers[&id].received.len() == size);
        worker.run_until(|_| client.is_finished());
        let (got, _stream) = client.join().unwrap();
        assert!(got == bytes && worker.peers[&id].received == bytes);
    }
}

fn who_sleeps_is_woken(backend: BackendChoice) {
    let mut worker = Worker::new(backend);
    worker.echo = true;
    let (mut stream, id, _) = open(&mut worker, 4096);
    stream.set_timeout(Some(PATIENCE));
    stream.set_spin(Duration::ZERO);
    let client = std::thread::spawn(move || {
        for round in 0..2000u32 {
            stream.write_all(&round.to_le_bytes()).unwrap();
            let mut echo = [0; 4];
            stream.read_exact(&mut echo).unwrap();
            assert_eq!(u32::from_le_bytes(echo), round);
        }
        stream
    });
    // It waits for as long as it takes: a bell that is missed would be for ever.
    worker.run_until(|worker| worker.peers[&id].received.len() == 8000);
    worker.run_until(|_| client.is_finished());
    drop(client.join().unwrap());
    worker.run_until(|worker| worker.peers[&id].closed == [None]);
}

fn what_stood_in_the_ring_comes_before_the_end(backend: BackendChoice) {
    let mut worker = Worker::new(backend);
    let (mut stream, id, _) = open(&mut worker, 1 << 20);
    let bytes = pattern(1 << 20, 7);
    stream.write_all(&bytes).unwrap();
    worker.reactor.pause(id);
    drop(stream);
    worker.run_until(|worker| worker.peers[&id].closed == [None]);
    assert!(worker.peers[&id].received == bytes);
    worker.close(id);
    worker.run_until(|worker| worker.reactor.connection_count() == 0);
}

fn the_end_of_the_server_is_seen_at_once(backend: BackendChoice) {
    let mut worker = Worker::new(backend);
    let (mut stream, id, _) = open(&mut worker, 4096);
    let client = std::thread::spawn(move || {
        let mut reply = Vec::new();
        let read = stream.read_to_end(&mut reply).map_err(|error| error.kind());
        (read, reply, stream.write_all(&[1; 10_000]).is_err())
    });
    worker.reactor.send(id, Payload::from(b"bye".to_vec()));
    worker.run_until(|worker| worker.peers[&id].sent.len() == 2);
    worker.close(id);
    worker.run_until(|_| client.is_finished());
    assert_eq!(client.join().unwrap(), (Ok(3), b"bye".to_vec(), true));
}

fn a_paused_ring_brings_nothing(backend: BackendChoice) {
    let mut worker = Worker::new(backend);
    let (mut stream, id, _) = open(&mut worker, 1 << 16);
    worker.reactor.pause(id);
    stream.write_all(b"later").unwrap();
    for _ in 0..3 {
        worker.turn(Some(Duration::from_millis(5)));
    }
    assert!(worker.peers[&id].received.is_empty());
    worker.reactor.resume(id);
    worker.run_until(|worker| worker.peers[&id].received == b"later");
}

fn bytes_beside_the_ring_end_it(backend: BackendChoice) {
    let mut worker = Worker::new(backend);
    let (mut socket, id, descriptors) = descriptors(&mut worker, 4096);
    socket.write_all(b"PING\r\n").unwrap();
    worker.run_until(|worker| worker.peers[&id].closed.len() == 1);
    assert_eq!(worker.peers[&id].closed, [Some("bytes beside the ring".to_string())]);
    drop(descriptors);
}

fn indices_that_cannot_be_end_the_connection_alone(backend: BackendChoice) {
    let mut worker = Worker::new(backend);
    worker.echo = true;
    let (mut other, _, _) = open(&mut worker, 4096);
    // The tail of the requests, and the head of the replies, which counts once something is sent.
    for (at, value) in [(64, 4097u32), (64, u32::MAX), (256, 5000), (256, u32::MAX)] {
        let (stream, id, memory) = open(&mut worker, 4096);
        memory.write_all_at(&value.to_le_bytes(), at).unwrap();
        if at == 256 {
            memory.write_all_at(&8u32.to_le_bytes(), 64).unwrap();
            worker.reactor.send(id, Payload::from(vec![1; 10_000]));
            worker.run_until(|worker| worker.peers[&id].sent.len() == 2);
            assert!(worker.peers[&id].sent[1].is_err());
        } else {
            // Nobody has rung: it is awake since it is new, or will be rung.
            worker.run_until(|worker| {
                ring_bell(&stream);
                worker.peers[&id].closed.len() == 1
            });
            assert!(worker.peers[&id].closed[0].as_ref().is_some_and(|e| e.contains("indices")));
        }
        worker.close(id);
    }
    other.write_all(b"well").unwrap();
    worker.turn(Some(Duration::from_secs(1)));
    let mut echo = [0; 4];
    other.read_exact(&mut echo).unwrap();
    assert_eq!(&echo, b"well");
}

fn ring_bell(stream: &Stream) {
    rustix::io::write(stream.bell().as_fd(), &1u64.to_ne_bytes()).unwrap();
}

/// A client that never empties its pipe, although it says each time that it sleeps.
fn a_full_bell_holds_nobody_up(backend: BackendChoice) {
    let mut worker = Worker::new(backend);
    let (_socket, id, descriptors) = descriptors(&mut worker, 4096);
    let memory = File::from(descriptors.memory.try_clone().unwrap());
    rustix::io::ioctl_fionbio(&descriptors.heard, false).unwrap();
    for round in 0..70_000u32 {
        memory.write_all_at(&3u32.to_le_bytes(), 384).unwrap();
        memory.write_all_at(&round.to_le_bytes(), 256).unwrap();
        worker.reactor.send(id, Payload::from(vec![1]));
        worker.run_until(|worker| worker.peers[&id].sent.len() == round as usize + 2);
    }
}

fn rings_come_and_go_without_a_trace(backend: BackendChoice) {
    let mut worker = Worker::new(backend);
    let count = || std::fs::read_dir("/proc/self/fd").unwrap().count();
    let maps = || {
        let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
        maps.lines().filter(|line| line.contains("kvasir-ring")).count()
    };
    let (before, _) = (count(), maps());
    for _ in 0..300 {
        let (stream, id, memory) = open(&mut worker, 4096);
        drop((stream, memory));
        worker.run_until(|worker| worker.peers[&id].closed.len() == 1);
        worker.close(id);
    }
    worker.run_until(|worker| worker.reactor.connection_count() == 0);
    // Other tests of this process have some, too, for as long as they run.
    let start = std::time::Instant::now();
    while count() > before + 100 || maps() > 100 {
        assert!(start.elapsed() < PATIENCE, "{} descriptors, {} maps", count(), maps());
    }
}

fn a_quiet_send_that_takes_its_time_ends_a_wait(backend: BackendChoice) {
    let mut worker = Worker::new(backend);
    let (mut stream, id, _) = open(&mut worker, 4096);
    worker.reactor.send_quietly(id, Payload::from(vec![1; 6000]));
    let client = std::thread::spawn(move || {
        let mut bytes = [0; 6000];
        stream.read_exact(&mut bytes).unwrap();
        stream
    });
    let start = Instant::now();
    while worker.peers[&id].sent.len() < 2 {
        worker.turn(Some(PATIENCE));
    }
    assert!(start.elapsed() < PATIENCE / 2, "nothing has ended the wait");
    drop(client.join().unwrap());
}

/// What is sent to one that reads no more fails, whether it goes at once or says goodbye before.
fn who_is_gone_has_read_all_it_will(backend: BackendChoice) {
    let mut worker = Worker::new(backend);
    for says_goodbye in [false, true] {
        let (socket, id, descriptors) = descriptors(&mut worker, 4096);
        worker.reactor.send(id, Payload::from(vec![1; 6000]));
        worker.turn(Some(Duration::ZERO));
        if says_goodbye {
            socket.shutdown(std::net::Shutdown::Write).unwrap();
            worker.run_until(|worker| worker.peers[&id].closed == [None]);
            assert_eq!(worker.peers[&id].sent.len(), 1, "it may read on");
        }
        drop((socket, descriptors));
        worker.run_until(|worker| worker.peers[&id].sent.len() == 2);
        assert!(worker.peers[&id].sent[1].is_err());
        worker.close(id);
    }
}

fn the_memory_of_a_ring_is_given_back_though_its_file_is_kept(backend: BackendChoice) {
    let mut worker = Worker::new(backend);
    const SIZE: u32 = 1 << 20;
    let pages = |memory: &File| memory.metadata().unwrap().blocks() * 512 / 4096;
    for is_there in [true, false] {
        let (mut stream, id, memory) = open(&mut worker, SIZE);
        stream.write_all(&pattern(SIZE as usize, 1)).unwrap();
        worker.run_until(|worker| worker.peers[&id].received.len() == SIZE as usize);
        let reply = pattern(SIZE as usize, 2);
        worker.reactor.send(id, Payload::from(reply.clone()));
        worker.run_until(|worker| worker.peers[&id].sent.len() == 2);
        let mut read = vec![0; SIZE as usize - 10_000];
        stream.read_exact(&mut read).unwrap();
        assert!(pages(&memory) > 500);
        if !is_there {
            drop(stream);
            worker.close(id);
            assert_eq!(pages(&memory), 0, "nobody reads it");
            continue;
        }
        worker.close(id);
        assert!(pages(&memory) <= 4, "{} pages", pages(&memory));
        // What it has not read is there still.
        stream.read_to_end(&mut read).unwrap();
        assert!(read == reply);
    }
}

/// The word in which a server says that it sleeps.
fn sleeps(memory: &File) -> bool {
    let mut word = [0; 4];
    memory.read_exact_at(&mut word, 320).unwrap();
    word != [0; 4]
}

fn who_spins_does_not_sleep(backend: BackendChoice) {
    let cores = std::fs::read_to_string("/sys/devices/system/cpu/online").unwrap();
    for ring_spin in [Duration::ZERO, PATIENCE] {
        if !ring_spin.is_zero() && cores.trim() == "0" {
            continue;
        }
        let mut worker = Worker::with(Options { backend, ring_spin, ..Options::default() });
        let (mut stream, id, memory) = open(&mut worker, 4096);
        let client = std::thread::spawn(move || {
            let start = Instant::now();
            let is_over = || match ring_spin.is_zero() {
                true => sleeps(&memory),
                false => start.elapsed() > Duration::from_millis(20),
            };
            while !is_over() {
                assert!(start.elapsed() < PATIENCE && (ring_spin.is_zero() || !sleeps(&memory)));
                std::thread::yield_now();
            }
            stream.write_all(b"there").unwrap();
            stream
        });
        worker.run_until(|worker| worker.peers[&id].received == b"there");
        drop(client.join().unwrap());
    }
}
