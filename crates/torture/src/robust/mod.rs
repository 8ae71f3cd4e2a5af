//! `cargo xtask robust`: bad input of every kind; the server says what is wrong, and lives.
//!
//! Malformed requests get Redis's very bytes, random ones no crash and no growth, limits hold
//! before memory is taken, and a start that cannot be names its reason.

mod malformed;
mod noise;
mod start;

use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use kvasir_harness::cpu;
use kvasir_harness::kvasir::{self, Backends};
use kvasir_harness::link::{Call, Link};
use kvasir_harness::oracle::Oracle;
use kvasir_harness::server::{Launch, Server};
use kvasir_harness::wait::wait_until;

/// The longest value there can be.
const VALUE_BYTES_MAX: usize = 512 * 1024 * 1024;
/// Connections that announce what they never send, and what that may cost in memory.
const ANNOUNCING_CONNECTIONS: usize = 100;
const ANNOUNCING_RSS_BYTES_MAX: u64 = 64 * 1024 * 1024;

#[derive(clap::Args)]
pub struct Options {
    /// How long random bytes are sent, to each backend
    #[arg(long, default_value_t = 60)]
    seconds: u64,
    #[command(flatten)]
    backends: Backends,
    /// Leave out the value of 512 MiB
    #[arg(long)]
    quick: bool,
}

pub fn main(options: &Options) -> Result<()> {
    options.backends.each(|backend| robust(backend, options.seconds, options.quick))
}

/// Everything on one backend.
pub fn robust(backend: &str, seconds: u64, quick: bool) -> Result<()> {
    start::check(&kvasir(backend, &[])?)?;
    malformed::check(backend)?;
    check_maxclients(backend)?;
    check_announcing(backend)?;
    check_values(backend, if quick { 1024 * 1024 } else { VALUE_BYTES_MAX })?;
    noise::check(backend, seconds)?;
    println!("robust on {backend}: all checks passed");
    Ok(())
}

/// How Kvasir is started.
fn kvasir(backend: &str, options: &[&str]) -> Result<Launch> {
    kvasir::launch(backend, 2, options)
}

/// How the oracle is started.
fn redis(options: &[&str]) -> Result<Launch> {
    let args = ["--unixsocket", "socket", "--appendonly", "no", "--save", ""];
    let args = args.iter().chain(options).map(ToString::to_string).collect();
    Ok(Launch { program: Oracle::redis()?.program, args, cores: None })
}

fn socket(server: &Server) -> std::path::PathBuf {
    server.dir().join("socket")
}

/// One more client than there may be is told so and sent away; the others stay.
fn check_maxclients(backend: &str) -> Result<()> {
    let server = Server::start(&kvasir(backend, &["--maxclients", "5"])?)?;
    // The connection that saw the start may not be gone yet.
    wait_until("earlier clients are gone", || {
        Ok(connected_clients(&mut Link::connect(&socket(&server))?)? == 1)
    })?;
    let mut links = Vec::new();
    for _ in 0..5 {
        let mut link = Link::connect(&socket(&server))?;
        // The clients of the last look may just be leaving.
        if link.ask(&["PING"]).is_ok_and(|reply| !reply.is_error()) {
            links.push(link);
        }
    }
    ensure!(links.len() >= 4, "{} of 5 clients were let in", links.len());
    let mut refused = UnixStream::connect(socket(&server))?;
    refused.set_read_timeout(Some(Duration::from_secs(10)))?;
    let mut text = Vec::new();
    if links.len() == 5 {
        refused.read_to_end(&mut text).context("a client too many is not sent away")?;
        let wanted = b"-ERR max number of clients reached\r\n";
        ensure!(text == wanted, "a client too many is told {}", text.escape_ascii());
    }
    for link in &mut links {
        ensure!(link.ask(&["PING"])?.text() == Some(b"PONG"), "an earlier client suffers");
    }
    println!("robust on {backend}: maxclients holds");
    Ok(())
}

fn connected_clients(link: &mut Link) -> Result<u64> {
    let info = link.ask(&["INFO", "clients"])?;
    let text = String::from_utf8_lossy(info.text().unwrap_or_default()).into_owned();
    let line = text.lines().find_map(|line| line.strip_prefix("connected_clients:"));
    Ok(line.context("INFO names no connected_clients")?.trim().parse()?)
}

/// Headers that promise much are believed only when it arrives.
fn check_announcing(backend: &str) -> Result<()> {
    let server = Server::start(&kvasir(backend, &[])?)?;
    let before = cpu::resident_bytes(server.pid())? as u64;
    let mut streams = Vec::new();
    for index in 0..ANNOUNCING_CONNECTIONS {
        let mut stream = UnixStream::connect(socket(&server))?;
        let head: &[u8] = match index % 3 {
            0 => b"*2147483647\r\n$4\r\nMSET\r\n",
            1 => b"*1048576\r\n$536870912\r\nx",
            _ => b"*3\r\n$3\r\nSET\r\n$1\r\nk\r\n$536870912\r\nsome",
        };
        stream.write_all(head)?;
        streams.push(stream);
    }
    let mut link = Link::connect(&socket(&server))?;
    for _ in 0..100 {
        ensure!(link.ask(&["PING"])?.text() == Some(b"PONG"), "no PONG");
    }
    let grown = (cpu::resident_bytes(server.pid())? as u64).saturating_sub(before);
    ensure!(grown < ANNOUNCING_RSS_BYTES_MAX, "headers alone made the server grow by {grown} B");
    println!("robust on {backend}: {ANNOUNCING_CONNECTIONS} announcements cost {grown} B");
    Ok(())
}

/// Empty, binary and very long keys and values come back as they were.
fn check_values(backend: &str, long: usize) -> Result<()> {
    let server = Server::start(&kvasir(backend, &[])?)?;
    let mut link = Link::connect(&socket(&server))?;
    let all_bytes: Vec<u8> = (0..=255).cycle().take(1000).collect();
    let long: Vec<u8> = (0..long).map(|at| (at ^ (at >> 8)) as u8).collect();
    let cases: [(&[u8], &[u8]); 5] =
        [(b"", b""), (b"k", b""), (b"", b"v"), (&all_bytes, &all_bytes), (b"long", &long)];
    for (key, value) in cases {
        let set: Call = vec![b"SET".to_vec(), key.to_vec(), value.to_vec()];
        ensure!(link.call(&set)?.text() == Some(b"OK"), "SET of {} bytes", value.len());
        let reply = link.call(&vec![b"GET".to_vec(), key.to_vec()])?;
        ensure!(reply.text() == Some(value), "a value of {} bytes came back changed", value.len());
    }
    println!("robust on {backend}: values up to {} B come back as they were", long.len());
    Ok(())
}
