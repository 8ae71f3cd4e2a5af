//! Sending: shared chunks, short sends, large payloads, closing meanwhile.

use std::io::{Read, Write};
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::harness::{PATIENCE, Worker, pattern};
use kvasir_reactor::{BackendChoice, ConnectionId, Payload, Reactor};

crate::for_each_backend! {
    an_empty_payload_is_sent_at_once
    shared_chunks_reach_a_slow_reader_in_order
    more_chunks_than_one_call_takes
    sixty_four_megabytes
    a_large_payload_takes_several_turns
    closing_with_a_send_on_its_way
    closing_before_the_first_turn
    what_was_sent_before_a_close_arrives
    a_capacity_comes_back
    a_quiet_success_ends_no_wait
    a_quiet_failure_is_reported
}

fn sent(worker: &Worker, id: ConnectionId) -> bool {
    !worker.peers[&id].sent.is_empty()
}

fn an_empty_payload_is_sent_at_once(backend: BackendChoice) {
    let mut worker = Worker::new(backend);
    let (_stream, id) = worker.connect();
    worker.reactor.send(id, Payload::default());
    worker.turn(None);
    assert_eq!(worker.peers[&id].sent, [Ok(())]);
    let shared = vec![(0, Arc::new(Vec::new()))];
    worker.reactor.send(id, Payload { bytes: Vec::new(), shared });
    worker.turn(None);
    assert_eq!(worker.peers[&id].sent, [Ok(()), Ok(())]);
}

/// Sends the payload both ways, reads it in small steps, and compares.
fn check_payload(worker: &mut Worker, payload: Payload, step: usize) {
    let again = Payload { bytes: payload.bytes.clone(), shared: payload.shared.clone() };
    check_payload_by(worker, payload, step, Reactor::send);
    check_payload_by(worker, again, step, Reactor::send_quietly);
}

fn check_payload_by(
    worker: &mut Worker,
    payload: Payload,
    step: usize,
    send: fn(&mut Reactor, ConnectionId, Payload),
) {
    let mut expect = Vec::new();
    let mut position = 0;
    for (next, chunk) in &payload.shared {
        expect.extend_from_slice(&payload.bytes[position..*next]);
        expect.extend_from_slice(chunk);
        position = *next;
    }
    expect.extend_from_slice(&payload.bytes[position..]);
    assert_eq!(expect.len(), payload.size());

    let (mut stream, id) = worker.connect();
    let size = expect.len();
    let reader = std::thread::spawn(move || {
        let mut reply = vec![0; size];
        for part in reply.chunks_mut(step) {
            stream.read_exact(part).unwrap();
            std::thread::yield_now();
        }
        (stream, reply)
    });
    send(&mut worker.reactor, id, payload);
    worker.run_until(|worker| sent(worker, id));
    let (_stream, reply) = reader.join().unwrap();
    assert!(reply == expect, "the bytes differ");
    assert_eq!(worker.peers[&id].sent, [Ok(())]);
}

fn shared_chunks_reach_a_slow_reader_in_order(backend: BackendChoice) {
    let mut worker = Worker::new(backend);
    worker.send_buffer_size = Some(4096);
    let big = Arc::new(pattern(700_000, 1));
    let small = Arc::new(pattern(3, 2));
    let shared = vec![
        (0, small.clone()),
        (10, big.clone()),
        (10, small.clone()),
        (150_000, big.clone()),
        (200_000, Arc::new(Vec::new())),
        (200_000, small),
    ];
    let payload = Payload { bytes: pattern(200_000, 3), shared };
    check_payload(&mut worker, payload, 7001);
    assert_eq!(Arc::strong_count(&big), 1, "chunks are dropped once sent");
}

fn more_chunks_than_one_call_takes(backend: BackendChoice) {
    let mut worker = Worker::new(backend);
    let chunks = (0..3000).map(|index| (index, Arc::new(pattern(17, index as u32))));
    let payload = Payload { bytes: pattern(3000, 1), shared: chunks.collect() };
    check_payload(&mut worker, payload, 1000);
}

fn sixty_four_megabytes(backend: BackendChoice) {
    let mut worker = Worker::new(backend);
    check_payload(&mut worker, Payload::from(pattern(64 << 20, 1)), 1 << 20);
}

fn a_large_payload_takes_several_turns(backend: BackendChoice) {
    check_turns(backend, Reactor::send);
    check_turns(backend, Reactor::send_quietly);
}

/// Nothing else happens meanwhile that could end a wait.
fn check_turns(backend: BackendChoice, send: fn(&mut Reactor, ConnectionId, Payload)) {
    const SIZE: usize = 1 << 20;
    let mut worker = Worker::new(backend);
    worker.send_buffer_size = Some(4 * SIZE);
    let (mut stream, id) = worker.connect();
    // A connection that was just heard of is looked at, which ends a wait as well.
    let calm = Instant::now();
    while calm.elapsed() < Duration::from_millis(500) {
        worker.turn(Some(Duration::from_millis(100)));
    }
    let reader = std::thread::spawn(move || stream.read_exact(&mut vec![0; SIZE]).unwrap());
    send(&mut worker.reactor, id, Payload::from(vec![7; SIZE]));
    let (mut turns, start) = (0, Instant::now());
    while !sent(&worker, id) {
        worker.turn(Some(PATIENCE));
        turns += 1;
    }
    assert!(start.elapsed() < PATIENCE, "the rest waited for something else");
    assert!(turns >= 4, "others had a turn {turns} times");
    reader.join().unwrap();
}

fn closing_with_a_send_on_its_way(backend: BackendChoice) {
    let mut worker = Worker::new(backend);
    let shared = Arc::new(pattern(16 << 20, 1));
    for turns in 0..3 {
        let (mut stream, id) = worker.connect();
        let payload = Payload { bytes: vec![1], shared: vec![(1, shared.clone())] };
        worker.reactor.send(id, payload);
        for _ in 0..turns {
            worker.turn(Some(Duration::ZERO));
        }
        assert!(!sent(&worker, id));
        worker.close(id);
        worker.run_until(|worker| worker.reactor.connection_count() == 0);
        assert_eq!(Arc::strong_count(&shared), 1, "the payload was dropped");
        let mut reply = Vec::new();
        let _ = stream.read_to_end(&mut reply);
        assert!(reply.len() < shared.len());
    }
}

fn closing_before_the_first_turn(backend: BackendChoice) {
    let mut worker = Worker::new(backend);
    for _ in 0..100 {
        let (mut stream, id) = worker.pair();
        stream.write_all(b"never read").unwrap();
        worker.close(id);
    }
    worker.run_until(|worker| worker.reactor.connection_count() == 0);
    assert!(worker.peers.values().all(|peer| peer.received.is_empty()));
}

fn what_was_sent_before_a_close_arrives(backend: BackendChoice) {
    let mut worker = Worker::new(backend);
    let (mut stream, id) = worker.connect();
    worker.reactor.send(id, Payload::from(b"+OK\r\n".to_vec()));
    worker.run_until(|worker| sent(worker, id));
    worker.close(id);
    worker.run_until(|worker| worker.reactor.connection_count() == 0);
    let mut reply = Vec::new();
    stream.read_to_end(&mut reply).unwrap();
    assert_eq!(reply, b"+OK\r\n");
}

fn a_capacity_comes_back(backend: BackendChoice) {
    let mut worker = Worker::new(backend);
    let (_stream, id) = worker.connect();
    let mut bytes = Vec::with_capacity(10_000);
    bytes.extend_from_slice(b"hello");
    let address = bytes.as_ptr();
    worker.reactor.send(id, Payload::from(bytes));
    let mut events = Vec::new();
    while events.is_empty() {
        worker.reactor.wait(None, &mut events).unwrap();
    }
    let Some(kvasir_reactor::Event::Sent { payload, .. }) = events.pop() else { panic!() };
    assert_eq!((payload.bytes.as_ptr(), payload.bytes.len()), (address, 0));
}

fn a_quiet_success_ends_no_wait(backend: BackendChoice) {
    const WAIT: Duration = Duration::from_millis(60);
    let mut worker = Worker::new(backend);
    let (mut stream, id) = worker.connect();
    worker.turn(Some(Duration::ZERO));
    worker.reactor.send_quietly(id, Payload::from(b"+OK\r\n".to_vec()));
    let start = Instant::now();
    worker.turn(Some(WAIT));
    assert!(start.elapsed() >= WAIT, "it waited for something else");
    assert_eq!(worker.peers[&id].sent, [Ok(())]);
    let mut reply = [0; 5];
    stream.read_exact(&mut reply).unwrap();
    assert_eq!(&reply, b"+OK\r\n");
}

fn a_quiet_failure_is_reported(backend: BackendChoice) {
    let mut worker = Worker::new(backend);
    let (stream, id) = worker.pair();
    drop(stream);
    worker.reactor.send_quietly(id, Payload::from(b"x".to_vec()));
    worker.run_until(|worker| sent(worker, id));
    assert!(worker.peers[&id].sent[0].is_err());
}
