//! Load from connections that each send a pipeline of calls, wait for its answers, and send the
//! next one.
//!
//! As redis-benchmark, but it hardly looks at the answers: with one core for the load and one for
//! the server, redis-benchmark's core is the one that is full, and a server that waits for work is
//! measured in smaller batches than one that does not.

use std::io::{Read, Write};
use std::net::{Ipv4Addr, TcpStream};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use kvasir_harness::random::Random;
use kvasir_resp::encode::encode_request;
use rustix::buffer::spare_capacity;
use rustix::event::epoll::{self, CreateFlags, Event, EventData, EventFlags};
use rustix::fs::Timespec;
use rustix::time::{ClockId, clock_gettime};

use super::kv::{Generated, Load};
use super::replies::Replies;

/// What stands where a number belongs, as long as the number will be.
const NUMBER: &[u8] = b"__rand_int__";
/// Longer than any call takes.
const PATIENCE: Timespec = Timespec { tv_sec: 30, tv_nsec: 0 };
/// Answers that are read at once.
const READ_BYTES: usize = 128 * 1024;

/// One connection.
struct Member {
    stream: TcpStream,
    /// The pipeline, and where its numbers stand.
    requests: Vec<u8>,
    numbers: Vec<usize>,
    replies: Replies,
    /// Answers to come.
    missing: u64,
    sent: Instant,
}

/// Makes about so many requests, on the thread that calls.
pub fn generate(port: u16, load: &Load, requests: u64) -> Result<Generated> {
    let pipeline = u64::from(load.pipeline);
    let mut left = (requests / pipeline).max(u64::from(load.connections));
    let rounds = left;
    let mut members =
        (0..load.connections).map(|_| Member::connect(port, load)).collect::<Result<Vec<_>>>()?;
    let events = epoll::create(CreateFlags::CLOEXEC)?;
    for (index, member) in members.iter().enumerate() {
        epoll::add(&events, &member.stream, EventData::new_u64(index as u64), EventFlags::IN)?;
    }
    let mut random = Random::new(requests);
    let mut times = Vec::with_capacity(rounds as usize);
    let (start, cpu) = (Instant::now(), clock_gettime(ClockId::ThreadCPUTime));
    for member in &mut members {
        member.send(pipeline, load.keys, &mut random)?;
        left -= 1;
    }
    let mut ready: Vec<Event> = Vec::with_capacity(members.len());
    let mut bytes = vec![0; READ_BYTES];
    while times.len() < rounds as usize {
        ready.clear();
        epoll::wait(&events, spare_capacity(&mut ready), Some(&PATIENCE))?;
        ensure!(!ready.is_empty(), "no answer within {} s", PATIENCE.tv_sec);
        for event in &ready {
            let member = &mut members[event.data.u64() as usize];
            if !member.read(&mut bytes)? {
                continue;
            }
            times.push(member.sent.elapsed());
            if left > 0 {
                left -= 1;
                member.send(pipeline, load.keys, &mut random)?;
            }
        }
    }
    let cpu = Duration::try_from(clock_gettime(ClockId::ThreadCPUTime) - cpu)?;
    Ok(seen(times, rounds * pipeline, start.elapsed(), cpu))
}

impl Member {
    fn connect(port: u16, load: &Load) -> Result<Member> {
        let stream = TcpStream::connect((Ipv4Addr::LOCALHOST, port)).context("no connection")?;
        stream.set_nodelay(true)?;
        let requests = encode_request(&load.call).repeat(load.pipeline as usize);
        let is_number = |at: &usize| requests[*at..].starts_with(NUMBER);
        let numbers = (0..requests.len()).filter(is_number).collect();
        let replies = Replies::default();
        Ok(Member { stream, requests, numbers, replies, missing: 0, sent: Instant::now() })
    }

    /// Sends the pipeline with new numbers.
    fn send(&mut self, pipeline: u64, keys: u64, random: &mut Random) -> Result<()> {
        for at in &self.numbers {
            let mut number = random.next_u64() % keys;
            for digit in self.requests[*at..][..NUMBER.len()].iter_mut().rev() {
                *digit = b'0' + (number % 10) as u8;
                number /= 10;
            }
        }
        (self.missing, self.sent) = (pipeline, Instant::now());
        Ok(self.stream.write_all(&self.requests)?)
    }

    /// Whether all answers are there now.
    fn read(&mut self, bytes: &mut [u8]) -> Result<bool> {
        let length = self.stream.read(bytes)?;
        ensure!(length > 0, "the server closed a connection");
        let complete = self.replies.feed(&bytes[..length])?;
        match self.missing.checked_sub(complete) {
            Some(missing) => self.missing = missing,
            None => bail!("the server answered more than it was asked"),
        }
        Ok(self.missing == 0)
    }
}

/// What the rounds' times say.
fn seen(mut times: Vec<Duration>, requests: u64, took: Duration, cpu: Duration) -> Generated {
    times.sort_unstable();
    let ms = |time: Duration| time.as_secs_f64() * 1e3;
    let quantile = |share: f64| ms(times[(share * (times.len() - 1) as f64) as usize]);
    Generated {
        requests: requests as f64,
        ops_s: requests as f64 / took.as_secs_f64(),
        average_ms: ms(times.iter().sum::<Duration>()) / times.len() as f64,
        min_ms: quantile(0.0),
        p50_ms: quantile(0.5),
        p99_ms: quantile(0.99),
        max_ms: quantile(1.0),
        cpu_s: cpu.as_secs_f64(),
    }
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;
    use std::thread;

    use super::*;

    /// A server that answers PONG to each request of so many bytes, until its clients are gone.
    fn answer(listener: &TcpListener, clients: usize, length: usize) -> u64 {
        let serve = |mut stream: TcpStream| {
            let (mut request, mut count) = (vec![0; length], 0);
            while stream.read_exact(&mut request).is_ok() {
                assert!(request.starts_with(b"*2\r\n$3\r\nGET\r\n$16\r\nkey:0000000000"));
                count += 1;
                if stream.write_all(b"$4\r\nPONG\r\n").is_err() {
                    break;
                }
            }
            count
        };
        thread::scope(|scope| {
            let threads: Vec<_> = (0..clients)
                .map(|_| {
                    let (stream, _) = listener.accept().unwrap();
                    scope.spawn(move || serve(stream))
                })
                .collect();
            threads.into_iter().map(|thread| thread.join().unwrap()).sum()
        })
    }

    #[test]
    fn every_request_is_sent_and_answered() {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let port = listener.local_addr().unwrap().port();
        let call = ["GET", "key:__rand_int__"].map(str::to_string).to_vec();
        let length = encode_request(&call).len();
        let load = Load {
            call,
            connections: 3,
            pipeline: 4,
            keys: 100,
            count_max: None,
            calibration: 1,
            tls_port: None,
        };
        thread::scope(|scope| {
            let served = scope.spawn(|| answer(&listener, 3, length));
            let seen = generate(port, &load, 1000).unwrap();
            assert_eq!((seen.requests, served.join().unwrap()), (1000.0, 1000));
            assert!(seen.min_ms > 0.0 && seen.min_ms <= seen.p50_ms && seen.p99_ms <= seen.max_ms);
            assert!(seen.ops_s > 0.0 && seen.cpu_s > 0.0);
        });
    }
}
