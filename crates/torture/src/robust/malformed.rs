//! Requests that are none: Redis's replies byte by byte, and whether the connection is closed.

use std::io::{ErrorKind, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

use anyhow::{Result, ensure};
use kvasir_harness::server::Server;

use super::{kvasir, redis, socket};

/// Longer than the 64 KiB in which a line has to end.
const LINE_BYTES: usize = 70_000;
/// The oracle is silent for so long: there will be nothing more.
const SILENCE: Duration = Duration::from_millis(150);
/// The same where the two differ: something may have kept the oracle from answering.
const LONG_SILENCE: Duration = Duration::from_secs(3);
/// For Kvasir to do what the oracle did.
const PATIENCE: Duration = Duration::from_secs(60);

/// Surplus behind an argument, and quotes inside a word, are as in Valkey, with which the server's
/// own tests compare.
static CASES: &[&[u8]] = &[
    b"*1\r\nPING\r\n",
    b"*1\r\n:4\r\nPING\r\n",
    b"*2\r\n$4\r\nPING\r\n*1\r\n",
    b"*-1\r\nPING\r\n",
    b"*0\r\nPING\r\n",
    b"\r\n\r\nPING\r\n",
    b"\nPING\n",
    b"*\r\n",
    b"*abc\r\n",
    b"* 1\r\n",
    b"*01\r\n",
    b"*+1\r\n",
    b"*2147483648\r\n",
    b"*99999999999999999999\r\n",
    b"*-2147483649\r\nPING\r\n",
    b"*1\r\n$-1\r\n",
    b"*1\r\n$abc\r\n",
    b"*1\r\n$\r\n",
    b"*1\r\n$04\r\nPING\r\n",
    b"*1\r\n$536870913\r\n",
    b"*1\r\n$9223372036854775808\r\n",
    b"*1\r\n$0\r\n\r\n",
    b"*2\r\n$0\r\n\r\n$0\r\n\r\n",
    b"*1\r\n$4\r\nPING\r\n*1\r\nPING\r\n*1\r\n$4\r\nPING\r\n",
    b"$4\r\nPING\r\n",
    b"+PING\r\n",
    b"%1\r\n$4\r\nPING\r\n",
    b"PING \"\r\n",
    b"PING 'a\r\n",
    b"ECHO 'a\\'b'\r\nECHO \"\\x41\\n\\q\"\r\n",
    b"  PING  \r\n",
    b"\tPING\t\r\n",
    b"PING\0PONG\r\n",
    b"\0\r\n",
    b"GET\r\n",
    b"nosuch a b\r\n",
    b"\xff\xfe\r\n",
    b"*1\r\n$2\r\n\r\n\r\n",
    b"POST / HTTP/1.1\r\nPING\r\n",
    b"Host: example.org\r\nPING\r\n",
];

/// Inputs with a long line: what begins it, and what it is filled with.
static LONG_CASES: &[(&[u8], u8)] =
    &[(b"", b'a'), (b"*", b'1'), (b"*1\r\n$", b'1'), (b"PING ", b' '), (b"ECHO \"", b'x')];

/// What a server did with the input.
#[derive(PartialEq, Eq)]
struct Outcome {
    reply: Vec<u8>,
    is_closed: bool,
}

pub fn check(backend: &str) -> Result<()> {
    let long_cases = LONG_CASES.iter().map(|(head, fill)| {
        let mut input = head.to_vec();
        input.resize(head.len() + LINE_BYTES, *fill);
        input
    });
    let cases: Vec<Vec<u8>> = CASES.iter().map(|case| case.to_vec()).chain(long_cases).collect();
    compare(backend, &[], &cases)?;
    compare(backend, &["--requirepass", "secret"], &unauthenticated())?;
    compare(backend, &["--proto-max-bulk-len", "1mb"], &long_bulks())?;
    compare(backend, &["--client-query-buffer-limit", "1mb"], &long_queries())?;
    println!("robust on {backend}: {} malformed inputs answered as by Redis", cases.len());
    Ok(())
}

/// Who has not given the password may send little.
fn unauthenticated() -> Vec<Vec<u8>> {
    let inputs: [&[u8]; 5] = [
        b"*11\r\n",
        b"*2\r\n$16385\r\n",
        b"*2\r\n$4\r\nPING\r\n$16385\r\n",
        b"PING\r\n",
        b"*10\r\n$16384\r\n",
    ];
    inputs.map(<[u8]>::to_vec).to_vec()
}

fn long_bulks() -> Vec<Vec<u8>> {
    let inputs: [&[u8]; 3] = [
        b"*3\r\n$3\r\nSET\r\n$1\r\nk\r\n$1048577\r\n",
        b"*1\r\n$1048577\r\n",
        b"SETRANGE k 1048570 0123456789\r\nSETRANGE k 10 x\r\n",
    ];
    inputs.map(<[u8]>::to_vec).to_vec()
}

/// An argument that is longer than the buffer may be. (Of a request of many arguments Redis counts
/// only the one that arrives; Kvasir counts the request, which is stricter.)
fn long_queries() -> Vec<Vec<u8>> {
    let mut input = b"*3\r\n$3\r\nSET\r\n$1\r\nk\r\n$4000000\r\n".to_vec();
    input.resize(3_000_000, b'x');
    vec![input]
}

fn compare(backend: &str, options: &[&str], cases: &[Vec<u8>]) -> Result<()> {
    let (ours, theirs) =
        (Server::start(&kvasir(backend, options)?), Server::start(&redis(options)?)?);
    let ours = ours?;
    let mut differing = 0;
    for input in cases {
        let both = |silence| -> Result<_> {
            let wanted = outcome(&socket(&theirs), input, None, silence)?;
            Ok((outcome(&socket(&ours), input, Some(&wanted), silence)?, wanted))
        };
        let (mut found, mut wanted) = both(SILENCE)?;
        if found != wanted {
            (found, wanted) = both(LONG_SILENCE)?;
        }
        if found != wanted {
            differing += 1;
            let shown = &input[..input.len().min(80)];
            println!("  input   {} ({} bytes)", shown.escape_ascii(), input.len());
            println!("  kvasir  {}", describe(&found));
            println!("  redis   {}", describe(&wanted));
        }
    }
    ensure!(differing == 0, "{differing} malformed inputs are not answered as by Redis");
    Ok(())
}

fn describe(outcome: &Outcome) -> String {
    let reply = &outcome.reply[..outcome.reply.len().min(200)];
    let end = if outcome.is_closed { "closed" } else { "open" };
    format!("{} ({end})", reply.escape_ascii())
}

/// Sends the input and sees what comes until it is silent. With `wanted` it waits long for that
/// much.
fn outcome(
    socket: &Path,
    input: &[u8],
    wanted: Option<&Outcome>,
    silence: Duration,
) -> Result<Outcome> {
    let mut stream = UnixStream::connect(socket)?;
    stream.set_write_timeout(Some(PATIENCE))?;
    // A server that has seen enough closes before it has read all.
    let _ = stream.write_all(input);
    let mut outcome = Outcome { reply: Vec::new(), is_closed: false };
    let mut chunk = [0; 4096];
    loop {
        let lacks = wanted
            .is_some_and(|wanted| outcome.reply.len() < wanted.reply.len() || wanted.is_closed);
        stream.set_read_timeout(Some(if lacks { PATIENCE } else { silence }))?;
        match stream.read(&mut chunk) {
            Ok(0) => {
                outcome.is_closed = true;
                return Ok(outcome);
            }
            Ok(len) => outcome.reply.extend_from_slice(&chunk[..len]),
            Err(error) if error.kind() == ErrorKind::ConnectionReset => {
                outcome.is_closed = true;
                return Ok(outcome);
            }
            Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => {
                return Ok(outcome);
            }
            Err(error) => return Err(error.into()),
        }
    }
}
