//! Whatever a client writes into the memory of its ring, the server gets what it put there, or
//! closes it.
//!
//! The input is a list of steps of five bytes: what to do, and a number, little-endian.
//!
//! | First byte, modulo 8 | Step |
//! |---|---|
//! | 0 | puts as many bytes as the number says, modulo 5000, and moves the tail of the requests |
//! | 1 | sets the tail of the requests |
//! | 2 | sets the head of the replies |
//! | 3 | sets what the server sleeps for |
//! | 4 | sets what the client sleeps for |
//! | 5 | the server sends as many bytes, modulo 9000 |
//! | 6 | writes the number among the bytes of the requests |
//! | 7 | the client reads all replies |
//!
//! After each the server has a turn.
#![no_main]

use std::fs::File;
use std::io::Write;
use std::os::unix::fs::FileExt;
use std::os::unix::net::UnixStream;
use std::time::Duration;

use kvasir_reactor::ring::Ring;
use kvasir_reactor::ring::client::receive;
use kvasir_reactor::{BackendChoice, ConnectionId, Event, Options, Payload, Reactor};
use libfuzzer_sys::fuzz_target;

const SIZE: usize = 4096;
const REQUESTS_TAIL: u64 = 64;
const REPLIES_TAIL: u64 = 192;
const REPLIES_HEAD: u64 = 256;
const SERVER_WAITS: u64 = 320;
const CLIENT_WAITS: u64 = 384;
const HEADER: u64 = 4096;

/// A server, a client that has written what it liked, and what should have come of it.
struct World {
    reactor: Reactor,
    id: ConnectionId,
    memory: File,
    bell: File,
    _others: (UnixStream, std::os::fd::OwnedFd),
    requests: [u8; SIZE],
    /// As the client has said; how much the server has got.
    tail: u32,
    received: u32,
    is_sending: bool,
    is_closed: bool,
}

fuzz_target!(|input: &[u8]| {
    let mut world = World::new();
    for step in input.chunks_exact(5).take(100) {
        let number = u32::from_le_bytes([step[1], step[2], step[3], step[4]]);
        world.step(step[0] % 8, number);
        if world.is_closed {
            return;
        }
        world.turn();
    }
});

impl World {
    fn new() -> World {
        let options = Options { backend: BackendChoice::Epoll, ..Options::default() };
        let mut reactor = Reactor::new(&options).expect("there are descriptors");
        let (ours, theirs) = UnixStream::pair().expect("there are descriptors");
        let id = reactor.register(ours.into());
        let ring = Ring::new(SIZE as u32).expect("there is memory");
        reactor.open_ring(id, ring, Payload::from(b"+".to_vec()));
        let (_, descriptors) = receive(&theirs, &mut [0]).expect("it was sent");
        let descriptors = descriptors.expect("they were sent");
        let mut world = World {
            reactor,
            id,
            memory: descriptors.memory.into(),
            bell: descriptors.bell.into(),
            _others: (theirs, descriptors.heard),
            requests: [0; SIZE],
            tail: 0,
            received: 0,
            is_sending: true,
            is_closed: false,
        };
        world.turn();
        world
    }

    fn step(&mut self, what: u8, number: u32) {
        match what {
            0 => {
                for index in 0..number % 5000 {
                    self.write(self.tail.wrapping_add(index), (number >> (index % 4 * 8)) as u8);
                }
                self.set_tail(self.tail.wrapping_add(number % 5000));
            }
            1 => self.set_tail(number),
            2 => self.set(REPLIES_HEAD, number),
            3 => self.set(SERVER_WAITS, number),
            4 => self.set(CLIENT_WAITS, number),
            5 if !self.is_sending => {
                self.is_sending = true;
                self.reactor.send(self.id, Payload::from(vec![7; number as usize % 9000]));
            }
            6 => (0..4).for_each(|byte| self.write(number, (number >> (8 * byte)) as u8)),
            7 => {
                let mut tail = [0; 4];
                self.memory.read_exact_at(&mut tail, REPLIES_TAIL).expect("it is there");
                self.set(REPLIES_HEAD, u32::from_le_bytes(tail));
            }
            _ => {}
        }
        self.bell.write_all(&1u64.to_ne_bytes()).expect("it is a bell");
    }

    fn set(&self, at: u64, value: u32) {
        self.memory.write_all_at(&value.to_le_bytes(), at).expect("it is there");
    }

    fn set_tail(&mut self, tail: u32) {
        self.tail = tail;
        self.set(REQUESTS_TAIL, tail);
    }

    fn write(&mut self, index: u32, byte: u8) {
        let place = index as usize % SIZE;
        self.requests[place] = byte;
        self.memory.write_all_at(&[byte], HEADER + place as u64).expect("it is there");
    }

    fn turn(&mut self) {
        let waits = self.tail.wrapping_sub(self.received);
        let is_possible = waits as usize <= SIZE;
        let mut events = Vec::new();
        self.reactor.wait(Some(Duration::ZERO), &mut events).expect("it can look");
        for event in events {
            match event {
                Event::Received { buffer, .. } => {
                    assert!(is_possible, "it has believed {waits}");
                    for &byte in self.reactor.bytes(&buffer) {
                        assert_eq!(byte, self.requests[self.received as usize % SIZE]);
                        self.received = self.received.wrapping_add(1);
                    }
                    self.reactor.recycle(buffer);
                }
                Event::Sent { result, .. } => {
                    self.is_sending = false;
                    self.is_closed |= result.is_err();
                }
                Event::Closed { .. } => self.is_closed = true,
                _ => {}
            }
        }
        if self.is_closed {
            // Only who has said what cannot be is closed; the head may have been impossible.
            self.reactor.close(self.id);
            // The bug that the fuzzer must find.
            assert!(!cfg!(feature = "canary") || is_possible, "what cannot be was believed");
            return;
        }
        assert!(is_possible, "{waits} bytes are not there");
        assert_eq!(self.received, self.tail, "all that is there has come");
    }
}
