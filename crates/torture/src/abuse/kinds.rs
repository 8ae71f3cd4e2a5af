//! The kinds of bad clients. Each function is one thread's work until the time is over.

use std::io::{ErrorKind, Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::sync::atomic::Ordering::Relaxed;
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use rustix::net::{AddressFamily, SocketType, sockopt};

use super::Field;

pub const BIG_VALUE_BYTES: usize = 1024 * 1024;
const MEGABYTE: u64 = 1024 * 1024;
/// A kernel without preemption leaves the processor to a call until it is done, whatever the
/// caller's priority, and an attacker's long calls would be on another machine's: to send a lot at
/// once, or to drop a lot that was not sent.
const PIECE_BYTES: usize = 16 * 1024;
const UNSENT_BYTES: usize = 4 * PIECE_BYTES;

pub struct Kind {
    pub name: &'static str,
    pub threads: usize,
    pub work: fn(&Field, usize) -> Result<()>,
    /// How much memory may grow; `None` where no limit of the server bounds it.
    pub grown_bytes_max: Option<u64>,
}

pub static KINDS: &[Kind] = &[
    Kind { name: "churn", threads: 2, work: churn, grown_bytes_max: Some(64 * MEGABYTE) },
    Kind { name: "half-open", threads: 4, work: half_open, grown_bytes_max: Some(64 * MEGABYTE) },
    Kind { name: "slow-readers", threads: 4, work: read_slowly, grown_bytes_max: None },
    Kind { name: "never-read", threads: 4, work: never_read, grown_bytes_max: None },
    Kind { name: "garbage", threads: 4, work: send_garbage, grown_bytes_max: Some(64 * MEGABYTE) },
    Kind { name: "promises", threads: 4, work: promise, grown_bytes_max: Some(64 * MEGABYTE) },
];

const SLOW_READERS: usize = 12;
/// So many replies each of them asks for at once.
const BIG_REPLIES: usize = 4;
const NEVER_READERS: usize = 2;
const NEVER_READ_REPLIES: usize = 16;

/// Connections that come and go as fast as they can: some say nothing, some half a word, some ask
/// and do not wait for the answer.
fn churn(field: &Field, thread: usize) -> Result<()> {
    const WORDS: [&[u8]; 4] = [b"", b"*1\r\n$4\r\nPI", b"PING\r\n", b"GET big\r\n"];
    for turn in 0.. {
        if field.is_over.load(Relaxed) {
            break;
        }
        let mut stream = connect(field)?;
        // The server may be faster in closing than we in writing.
        let _ = stream.write(WORDS[(turn + thread) % WORDS.len()]);
        // An orderly end leaves our port waiting for a minute; there are 28,000 of them.
        if turn % 64 != 0 {
            reset_on_close(&stream)?;
        }
        field.done.fetch_add(1, Relaxed);
    }
    Ok(())
}

/// As many connections as there may be, each in the middle of a request that never ends; where one
/// is closed another takes its place.
fn half_open(field: &Field, _: usize) -> Result<()> {
    let mut streams = Vec::new();
    for turn in 0.. {
        if field.is_over.load(Relaxed) {
            break;
        }
        let mut stream = connect(field)?;
        stream.write_all(b"*3\r\n$3\r\nSET\r\n$3\r\nkey\r\n$100\r\nhalf a value")?;
        reset_on_close(&stream)?;
        field.done.fetch_add(1, Relaxed);
        if streams.len() < field.connections / 4 {
            streams.push(stream);
        } else {
            streams[turn % (field.connections / 4)] = stream;
            thread::sleep(Duration::from_millis(1));
        }
    }
    Ok(())
}

/// Clients that ask for megabytes and take a few kilobytes at a time.
fn read_slowly(field: &Field, _: usize) -> Result<()> {
    let mut streams: Vec<TcpStream> =
        (0..SLOW_READERS).map(|_| connect(field)).collect::<Result<_>>()?;
    let mut left = vec![0_usize; streams.len()];
    let mut chunk = vec![0; 4096];
    while !field.is_over.load(Relaxed) {
        for (stream, left) in streams.iter_mut().zip(&mut left) {
            if *left == 0 {
                stream.write_all(&b"GET big\r\n".repeat(BIG_REPLIES))?;
                *left = BIG_REPLIES * (BIG_VALUE_BYTES + b"$1048576\r\n\r\n".len());
            }
            let wanted = chunk.len().min(*left);
            let len = stream.read(&mut chunk[..wanted]).context("a slow reader is cut off")?;
            ensure!(len > 0, "a slow reader is sent away");
            *left -= len;
            field.done.fetch_add(len as u64, Relaxed);
        }
        thread::sleep(Duration::from_millis(1));
    }
    Ok(())
}

/// Clients that ask and ask and never read.
fn never_read(field: &Field, _: usize) -> Result<()> {
    let mut streams: Vec<TcpStream> =
        (0..NEVER_READERS).map(|_| connect(field)).collect::<Result<_>>()?;
    let mut asked = vec![0; streams.len()];
    while !field.is_over.load(Relaxed) {
        for (stream, asked) in streams.iter_mut().zip(&mut asked) {
            if *asked < NEVER_READ_REPLIES {
                stream.write_all(b"GET big\r\n")?;
                *asked += 1;
                field.done.fetch_add(1, Relaxed);
            }
        }
        thread::sleep(Duration::from_millis(1));
    }
    Ok(())
}

/// A megabyte without the end of a line: more than an inline request may have.
fn send_garbage(field: &Field, _: usize) -> Result<()> {
    let garbage = vec![b'x'; MEGABYTE as usize];
    while !field.is_over.load(Relaxed) {
        let mut stream = connect(field)?;
        sockopt::set_socket_send_buffer_size(&stream, UNSENT_BYTES)?;
        stream.set_read_timeout(Some(Duration::from_secs(20)))?;
        // It is cut off somewhere in the middle.
        let _ = garbage.chunks(PIECE_BYTES).try_for_each(|piece| stream.write_all(piece));
        let mut text = Vec::new();
        match stream.read_to_end(&mut text) {
            // What it was told may be lost with the rest of what it has sent.
            Ok(_) => {}
            Err(error) if error.kind() == ErrorKind::ConnectionReset => {}
            Err(error) => return Err(error).context("garbage is not refused"),
        }
        let refusal = b"-ERR Protocol error: too big inline request\r\n";
        ensure!(text.is_empty() || text == refusal, "garbage is told {}", text.escape_ascii());
        field.done.fetch_add(1, Relaxed);
    }
    Ok(())
}

/// Requests that announce half a gigabyte, of which little comes.
fn promise(field: &Field, _: usize) -> Result<()> {
    const STREAMS: usize = 64;
    let mut streams = Vec::new();
    for turn in 0.. {
        if field.is_over.load(Relaxed) {
            break;
        }
        let mut stream = connect(field)?;
        reset_on_close(&stream)?;
        stream.write_all(b"*3\r\n$3\r\nSET\r\n$1\r\nk\r\n$536870912\r\n")?;
        stream.write_all(&[b'y'; 20_000])?;
        field.done.fetch_add(1, Relaxed);
        if streams.len() < STREAMS {
            streams.push(stream);
        } else {
            streams[turn % STREAMS] = stream;
        }
    }
    Ok(())
}

/// From an address of its own for each few connections: to find one of the last free ports of an
/// address takes the kernel milliseconds, and an attacker's would be another machine's.
fn connect(field: &Field) -> Result<TcpStream> {
    let count = field.connects.fetch_add(1, Relaxed);
    let from = SocketAddr::from((Ipv4Addr::new(127, 0, 1 + (count % 250) as u8, 1), 0));
    let socket = rustix::net::socket(AddressFamily::INET, SocketType::STREAM, None)?;
    // A server may listen where this one's port is not yet forgotten.
    sockopt::set_socket_reuseaddr(&socket, true)?;
    rustix::net::bind(&socket, &from)?;
    // Longer than the kernel waits before it asks a full queue of connections again.
    let patience = Some(Duration::from_secs(20));
    sockopt::set_socket_timeout(&socket, sockopt::Timeout::Send, patience)?;
    let to = SocketAddr::from((Ipv4Addr::LOCALHOST, field.port));
    rustix::net::connect(&socket, &to).context("cannot connect")?;
    Ok(TcpStream::from(socket))
}

fn reset_on_close(stream: &TcpStream) -> Result<()> {
    Ok(sockopt::set_socket_linger(stream, Some(Duration::ZERO))?)
}
