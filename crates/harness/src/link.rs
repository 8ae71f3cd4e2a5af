//! One connection to one server over its unix socket: calls out, replies with every byte in.

use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use kvasir_resp::encode::encode_request;

use crate::raw::Raw;

/// No reply takes this long, unless the server hangs.
const TIMEOUT: Duration = Duration::from_secs(60);

/// A call: the command's name and its arguments.
pub type Call = Vec<Vec<u8>>;

pub struct Link {
    stream: UnixStream,
    received: Vec<u8>,
    /// The first byte of `received` that is not yet part of a reply.
    pos: usize,
}

impl Link {
    pub fn connect(socket: &Path) -> Result<Link> {
        let stream = UnixStream::connect(socket)
            .with_context(|| format!("cannot connect to {}", socket.display()))?;
        stream.set_read_timeout(Some(TIMEOUT))?;
        stream.set_write_timeout(Some(TIMEOUT))?;
        Ok(Link { stream, received: Vec::new(), pos: 0 })
    }

    /// Sends calls in one write.
    pub fn send(&mut self, calls: &[&Call]) -> Result<()> {
        let bytes = calls.iter().map(|call| encode_request(call)).collect::<Vec<_>>().concat();
        self.stream.write_all(&bytes).context("the server does not read")
    }

    pub fn reply(&mut self) -> Result<Raw> {
        loop {
            if let Some((raw, len)) = Raw::parse(&self.received[self.pos..]) {
                self.pos += len;
                return Ok(raw);
            }
            self.received.drain(..std::mem::take(&mut self.pos));
            let mut chunk = [0; 64 * 1024];
            match self.stream.read(&mut chunk).context("the server does not answer")? {
                0 => bail!("the server closed the connection"),
                len => self.received.extend_from_slice(&chunk[..len]),
            }
        }
    }

    pub fn replies(&mut self, count: usize) -> Result<Vec<Raw>> {
        (0..count).map(|_| self.reply()).collect()
    }

    pub fn call(&mut self, call: &Call) -> Result<Raw> {
        self.send(&[call])?;
        self.reply()
    }

    pub fn ask(&mut self, words: &[&str]) -> Result<Raw> {
        self.call(&words.iter().map(|word| word.as_bytes().to_vec()).collect())
    }
}

/// A call as one would type it.
pub fn show(call: &Call) -> String {
    const SHOWN_MAX: usize = 120;
    let words = call.iter().map(|word| {
        let shown = word[..word.len().min(SHOWN_MAX)].escape_ascii().to_string();
        let is_plain = !shown.is_empty() && !shown.contains([' ', '\\', '\'', '"']);
        let shown = if is_plain { shown } else { format!("\"{shown}\"") };
        if word.len() > SHOWN_MAX { format!("{shown}...[{} bytes]", word.len()) } else { shown }
    });
    words.collect::<Vec<_>>().join(" ")
}
