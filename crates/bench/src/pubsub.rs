//! PUBLISH to one channel with 1, 100 and 10,000 subscribers: server CPU per message.
//!
//! One client publishes and waits for its replies; the subscribers' sockets fill meanwhile and are
//! read between rounds, while the server has nothing to do. So no server pays for waking a reader,
//! and what is measured is the same work for all: taking the message, encoding it, and one send for
//! each subscriber and turn.

use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use kvasir_harness::cpu::{self, CpuTime};
use kvasir_harness::server::Server;

use super::idle::connect;
use super::report::Measurement;
use super::{Lab, Target};

/// Files that xtask needs beside the subscribers.
const OTHER_FILES: u64 = 100;
/// Messages per round: no more than the socket of a subscriber takes without a reader.
const ROUND: usize = 64;
const MESSAGE: [u8; 64] = [b'm'; 64];
const SUBSCRIBED: &[u8] = b"*3\r\n$9\r\nsubscribe\r\n$7\r\nchannel\r\n:1\r\n";

struct Point {
    subscribers: usize,
    pipeline: usize,
}

const POINTS: [Point; 6] = [
    Point { subscribers: 1, pipeline: 1 },
    Point { subscribers: 1, pipeline: 16 },
    Point { subscribers: 100, pipeline: 1 },
    Point { subscribers: 100, pipeline: 16 },
    Point { subscribers: 10_000, pipeline: 1 },
    Point { subscribers: 10_000, pipeline: 16 },
];

pub fn run(lab: &Lab, target: &Target) -> Result<Vec<Measurement>> {
    let limit = usize::try_from(cpu::raise_file_limit()?.saturating_sub(OTHER_FILES))?;
    let mut measurements = Vec::new();
    for Point { subscribers, pipeline } in POINTS {
        if subscribers > limit {
            lab.note(&format!("the limit of open files does not allow {subscribers} subscribers"));
            continue;
        }
        let case = format!("{subscribers} subscribers, pipeline {pipeline}");
        lab.say(&format!("{}: {case}", target.label));
        let server = lab.start(target, 1, &lab.server_core())?;
        let mut crowd = subscribe(&server, subscribers)?;
        let duration = Duration::from_secs_f64(lab.seconds);
        let metrics = measure(&server, &mut crowd, pipeline, duration)?;
        measurements.push(Measurement::new("pubsub", case, metrics));
    }
    Ok(measurements)
}

fn subscribe(server: &Server, count: usize) -> Result<Vec<TcpStream>> {
    let clients = connect(server, count)?;
    let mut crowd: Vec<TcpStream> =
        clients.into_iter().map(|client| client.into_stream()).collect();
    for subscriber in &mut crowd {
        subscriber.write_all(b"SUBSCRIBE channel\r\n")?;
        expect(subscriber, SUBSCRIBED)?;
    }
    Ok(crowd)
}

fn measure(
    server: &Server,
    crowd: &mut [TcpStream],
    pipeline: usize,
    duration: Duration,
) -> Result<BTreeMap<&'static str, f64>> {
    let mut publisher = server.client()?.into_stream();
    let message = String::from_utf8_lossy(&MESSAGE);
    let call = format!("*3\r\n$7\r\nPUBLISH\r\n$7\r\nchannel\r\n$64\r\n{message}\r\n");
    let calls = call.repeat(pipeline);
    let replies = format!(":{}\r\n", crowd.len()).repeat(pipeline);
    let delivery = format!("*3\r\n$7\r\nmessage\r\n$7\r\nchannel\r\n$64\r\n{message}\r\n");
    let deliveries = delivery.repeat(ROUND);
    let mut round = || -> Result<Duration> {
        let start = Instant::now();
        for _ in 0..ROUND / pipeline {
            publisher.write_all(calls.as_bytes())?;
            expect(&mut publisher, replies.as_bytes())?;
        }
        let took = start.elapsed();
        crowd.iter_mut().try_for_each(|subscriber| expect(subscriber, deliveries.as_bytes()))?;
        Ok(took)
    };
    round()?;
    let (before, start) = (CpuTime::of(server.pid())?, Instant::now());
    let (mut rounds, mut publishing) = (0, Duration::ZERO);
    while rounds == 0 || start.elapsed() < duration {
        publishing += round()?;
        rounds += 1;
    }
    let spent = CpuTime::of(server.pid())?.since(&before);
    let messages = (rounds * ROUND) as f64;
    let publish_us = spent.scheduler_s * 1e6 / messages;
    Ok(BTreeMap::from([
        ("publish_us", publish_us),
        ("delivery_us", publish_us / crowd.len() as f64),
        ("round_trip_us", publishing.as_secs_f64() * 1e6 / messages * pipeline as f64),
    ]))
}

fn expect(stream: &mut TcpStream, expected: &[u8]) -> Result<()> {
    let mut bytes = vec![0; expected.len()];
    stream.read_exact(&mut bytes)?;
    let shown = || String::from_utf8_lossy(&bytes).into_owned();
    ensure!(bytes == expected, "the server sent {:?}", shown());
    Ok(())
}
