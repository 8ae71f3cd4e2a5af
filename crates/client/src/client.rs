//! Calls and pipelines over a connection.

use std::io::{self, Read, Write};
use std::path::Path;

use kvasir_resp::decode::{DecodeLimits, Decoder};
use kvasir_resp::encode::write_request;
use kvasir_resp::value::Value;

use crate::{Connection, Options, invalid};

/// What is read at once.
const CHUNK_BYTES: usize = 64 << 10;

/// A client that calls and waits for the reply.
pub struct Client {
    connection: Connection,
    decoder: Decoder,
    requests: Vec<u8>,
    /// Calls whose replies were not read.
    pending: usize,
    /// Calls have failed: which reply is whose is not known any more.
    is_broken: bool,
    chunk: Box<[u8]>,
}

impl Client {
    pub fn open(path: impl AsRef<Path>, options: &Options) -> io::Result<Client> {
        Ok(Client::over(Connection::open(path, options)?))
    }

    pub fn over(connection: Connection) -> Client {
        Client {
            connection,
            decoder: Decoder::new(DecodeLimits::default()),
            requests: Vec::new(),
            pending: 0,
            is_broken: false,
            chunk: vec![0; CHUNK_BYTES].into_boxed_slice(),
        }
    }

    pub fn connection(&mut self) -> &mut Connection {
        &mut self.connection
    }

    /// Makes a call; an error of the server is a value.
    pub fn call(&mut self, words: &[impl AsRef<[u8]>]) -> io::Result<Value> {
        self.add(words);
        let mut replies = self.run()?;
        Ok(replies.pop().expect("there is a reply to each call"))
    }

    /// Adds a call to a pipeline.
    pub fn add(&mut self, words: &[impl AsRef<[u8]>]) {
        write_request(words.iter().map(AsRef::as_ref), &mut self.requests);
        self.pending += 1;
    }

    /// Makes the calls that were added; their replies. Requests and replies together may be longer
    /// than the server keeps waiting for a client that does not read. If that fails, by a timeout
    /// say, so does all that follows.
    pub fn run(&mut self) -> io::Result<Vec<Value>> {
        let pending = std::mem::take(&mut self.pending);
        let mut requests = std::mem::take(&mut self.requests);
        let replies = self.exchange(&requests, pending);
        requests.clear();
        self.requests = requests;
        self.is_broken |= replies.is_err();
        replies
    }

    fn exchange(&mut self, requests: &[u8], count: usize) -> io::Result<Vec<Value>> {
        self.check()?;
        self.connection.write_all(requests)?;
        (0..count).map(|_| self.read_reply()).collect()
    }

    /// The next reply or message, for whoever has subscribed. A timeout between two does no harm.
    pub fn read_reply(&mut self) -> io::Result<Value> {
        self.check()?;
        loop {
            if let Some(value) = self.decoder.next_value().map_err(invalid)? {
                return Ok(value);
            }
            let count = self.connection.read(&mut self.chunk)?;
            if count == 0 {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
            self.decoder.feed(&self.chunk[..count]);
        }
    }

    fn check(&self) -> io::Result<()> {
        match self.is_broken {
            true => Err(io::Error::new(io::ErrorKind::BrokenPipe, "calls before have failed")),
            false => Ok(()),
        }
    }
}
