//! Whatever a client writes into the memory of its ring, the server gets what it put there, or
//! closes it; and who has said nothing impossible is not closed, gets all that is sent, and is
//! heard although it rings only where the server says that it sleeps.
//!
//! The input is a list of steps of five bytes: what to do, and a number, little-endian.
//!
//! | First byte, modulo 11 | Step |
//! |---|---|
//! | 0 | puts as many bytes as the number says, modulo 5000, and moves the tail of the requests |
//! | 1 | sets the tail of the requests |
//! | 2 | sets the head of the replies |
//! | 3 | sets what the server sleeps for |
//! | 4 | sets what the client sleeps for |
//! | 5 | the server sends as many bytes, modulo 9000 |
//! | 6 | writes the number among the bytes of the requests |
//! | 7 | the client reads all replies |
//! | 8 | as 5, quietly |
//! | 9, 10 | the server pauses, and receives again |
//!
//! After each the server has a turn, in which it may fall asleep.
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
const FOR_DATA: u32 = 1;
const FOR_ROOM: u32 = 2;

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
    /// Up to where the client has read; how much the server has sent.
    head: u32,
    sent: u32,
    /// Nothing impossible was ever said.
    is_honest: bool,
    /// What the server sleeps for is as it has said.
    is_rung_when_asleep: bool,
    is_sending: bool,
    is_paused: bool,
    is_closed: bool,
}

/// A turn may sleep for so long.
const A_MOMENT: Duration = Duration::from_nanos(1);

/// The byte of this number of all that the server sends.
fn reply_byte(index: u32) -> u8 {
    (index % 251) as u8
}

fuzz_target!(|input: &[u8]| {
    let mut world = World::new();
    for step in input.chunks_exact(5).take(100) {
        let number = u32::from_le_bytes([step[1], step[2], step[3], step[4]]);
        world.step(step[0] % 11, number);
        if world.is_closed {
            return;
        }
        world.turn();
    }
    world.end();
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
            head: 0,
            sent: 0,
            is_honest: true,
            is_rung_when_asleep: true,
            is_sending: true,
            is_paused: false,
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
            2 => self.set_head(number),
            3 => {
                self.is_rung_when_asleep = false;
                self.set(SERVER_WAITS, number);
            }
            4 => self.set(CLIENT_WAITS, number),
            5 | 8 if !self.is_sending => self.send(number % 9000, what == 8),
            6 => (0..4).for_each(|byte| self.write(number, (number >> (8 * byte)) as u8)),
            7 => self.read_replies(),
            9 => self.pause(true),
            10 => self.pause(false),
            _ => {}
        }
        self.ring(match what {
            0 | 1 => FOR_DATA,
            2 | 7 => FOR_ROOM,
            _ => 0,
        });
    }

    fn send(&mut self, count: u32, is_quiet: bool) {
        self.is_sending = true;
        let bytes: Vec<u8> =
            (0..count).map(|index| reply_byte(self.sent.wrapping_add(index))).collect();
        self.sent = self.sent.wrapping_add(count);
        match is_quiet {
            true => self.reactor.send_quietly(self.id, Payload::from(bytes)),
            false => self.reactor.send(self.id, Payload::from(bytes)),
        }
    }

    fn pause(&mut self, is_paused: bool) {
        self.is_paused = is_paused;
        match is_paused {
            true => self.reactor.pause(self.id),
            false => self.reactor.resume(self.id),
        }
    }

    /// Rings as a client does, and always where it has hidden whether the server sleeps.
    fn ring(&mut self, reasons: u32) {
        if self.word(SERVER_WAITS) & reasons != 0 || !self.is_rung_when_asleep {
            self.set(SERVER_WAITS, 0);
            self.bell.write_all(&1u64.to_ne_bytes()).expect("it is a bell");
        }
    }

    fn word(&self, at: u64) -> u32 {
        let mut word = [0; 4];
        self.memory.read_exact_at(&mut word, at).expect("it is there");
        u32::from_le_bytes(word)
    }

    fn read_replies(&mut self) {
        let tail = self.word(REPLIES_TAIL);
        let count = tail.wrapping_sub(self.head);
        if self.is_honest {
            assert!(count as usize <= SIZE, "{count} bytes of replies");
            let mut replies = [0; SIZE];
            let at = HEADER + SIZE as u64;
            self.memory.read_exact_at(&mut replies, at).expect("it is there");
            for index in (0..count).map(|index| self.head.wrapping_add(index)) {
                assert_eq!(replies[index as usize % SIZE], reply_byte(index));
            }
        }
        self.set_head(tail);
    }

    fn set_head(&mut self, head: u32) {
        let there = self.word(REPLIES_TAIL).wrapping_sub(self.head);
        self.is_honest &= head.wrapping_sub(self.head) <= there;
        self.head = head;
        self.set(REPLIES_HEAD, head);
    }

    /// Whoever has been honest reads what is left.
    fn end(&mut self) {
        if !self.is_honest {
            return;
        }
        self.pause(false);
        for _ in 0..4 {
            self.read_replies();
            self.ring(FOR_ROOM);
            self.turn();
            assert!(!self.is_closed, "it was honest");
        }
        assert!(!self.is_sending, "there was room for all of it");
        assert_eq!(self.head, self.sent, "all that was sent has come");
    }

    fn set(&self, at: u64, value: u32) {
        self.memory.write_all_at(&value.to_le_bytes(), at).expect("it is there");
    }

    fn set_tail(&mut self, tail: u32) {
        self.is_honest &= tail.wrapping_sub(self.received) as usize <= SIZE;
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
        self.reactor.wait(Some(A_MOMENT), &mut events).expect("it can look");
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
            self.reactor.close(self.id);
            assert!(!self.is_honest, "only who has said what cannot be is closed");
            // The bug that the fuzzer must find.
            assert!(!cfg!(feature = "canary") || is_possible, "what cannot be was believed");
            return;
        }
        if self.is_paused {
            return;
        }
        assert!(is_possible, "{waits} bytes are not there");
        assert_eq!(self.received, self.tail, "all that is there has come");
    }
}
