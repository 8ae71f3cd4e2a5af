//! Collections to be loaded: what each holds, written as requests.

use std::io::{Read, Write};

use anyhow::{Result, ensure};
use kvasir_harness::client::Client;
use kvasir_resp::decode::Decoder;

/// Requests in one write.
const BATCH: u64 = 256;
/// Elements that one request adds to a large collection.
const CHUNK: u64 = 50;

/// A data set of equal or one large collections.
pub struct Shape {
    pub name: &'static str,
    pub keys: u64,
    /// Elements of each key.
    pub elements: u64,
    /// The command that adds elements, and what it adds as element `n` of a key.
    command: &'static str,
    element: fn(u64, &mut Request),
    /// Elements in one request.
    chunk: u64,
    /// The fields get a time to live in a request of their own.
    expires: bool,
}

/// The words of one request.
pub struct Request {
    words: u64,
    bytes: Vec<u8>,
}

impl Shape {
    /// Many small collections.
    const fn many(
        name: &'static str,
        keys: u64,
        elements: u64,
        command: &'static str,
        element: fn(u64, &mut Request),
    ) -> Shape {
        Shape { name, keys, elements, command, element, chunk: elements, expires: false }
    }

    /// One large collection.
    pub const fn one(
        name: &'static str,
        elements: u64,
        command: &'static str,
        element: fn(u64, &mut Request),
    ) -> Shape {
        // XADD adds one entry; no other of these commands begins so.
        let chunk = if command.as_bytes()[0] == b'x' { 1 } else { CHUNK };
        Shape { name, keys: 1, elements, command, element, chunk, expires: false }
    }

    /// As `scaled`, but what is small by intention stays so.
    pub fn scaled_if_large(&self, scale: f64) -> Shape {
        const LARGE_MIN: u64 = 100_000;
        self.scaled(if self.elements < LARGE_MIN { 1.0 } else { scale })
    }

    /// Of this share of the size: fewer keys, or fewer elements of the only one.
    pub fn scaled(&self, scale: f64) -> Shape {
        let share = |count: u64| ((count as f64 * scale) as u64).max(1);
        let (keys, elements) = match self.keys {
            1 => (1, share(self.elements)),
            keys => (share(keys), self.elements),
        };
        Shape { keys, elements, ..*self }
    }

    pub fn key(&self, index: u64) -> String {
        format!("key:{index:012}")
    }

    pub fn needs(&self) -> &'static str {
        if self.expires { "hexpire" } else { self.command }
    }

    /// Adds everything.
    pub fn load(&self, client: Client) -> Result<()> {
        let per_key = self.elements.div_ceil(self.chunk);
        let per_key_requests = per_key + u64::from(self.expires);
        pipeline(client, self.keys * per_key_requests, |number, out| {
            let (key, part) = (number / per_key_requests, number % per_key_requests);
            if part == per_key { self.write_expiry(key, out) } else { self.write(key, part, out) }
        })
    }

    fn write(&self, key: u64, part: u64, out: &mut Vec<u8>) {
        let mut request = Request { words: 0, bytes: Vec::new() };
        request.word(self.command.as_bytes());
        request.word(self.key(key).as_bytes());
        let first = part * self.chunk;
        let last = (first + self.chunk).min(self.elements);
        (first..last)
            .for_each(|element| (self.element)(key * self.elements + element, &mut request));
        request.write_to(out);
    }

    fn write_expiry(&self, key: u64, out: &mut Vec<u8>) {
        let mut request = Request { words: 0, bytes: Vec::new() };
        request.word(b"hexpire");
        request.word(self.key(key).as_bytes());
        [&b"1000000"[..], b"FIELDS"].iter().for_each(|word| request.word(word));
        request.word(self.elements.to_string().as_bytes());
        let first = key * self.elements;
        (first..first + self.elements).for_each(|element| request.word(&field(element)));
        request.write_to(out);
    }
}

impl Request {
    fn word(&mut self, word: &[u8]) {
        self.words += 1;
        self.bytes.extend_from_slice(format!("${}\r\n", word.len()).as_bytes());
        self.bytes.extend_from_slice(word);
        self.bytes.extend_from_slice(b"\r\n");
    }

    fn write_to(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(format!("*{}\r\n", self.words).as_bytes());
        out.extend_from_slice(&self.bytes);
    }
}

/// As many digits as redis-benchmark's numbers have.
fn field(n: u64) -> Vec<u8> {
    format!("field:{n:012}").into_bytes()
}

/// Looks random and is the same for all servers.
fn scattered(n: u64) -> u64 {
    let mut bits = n.wrapping_add(1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    bits ^= bits >> 29;
    bits.wrapping_mul(0xbf58_476d_1ce4_e5b9) >> 20
}

pub fn hash_field(n: u64, request: &mut Request) {
    request.word(&field(n));
    request.word(format!("value:{:08}", scattered(n) % 100_000_000).as_bytes());
}

pub fn integer(n: u64, request: &mut Request) {
    request.word((scattered(n) % 1_000_000_000).to_string().as_bytes());
}

pub fn member(n: u64, request: &mut Request) {
    request.word(format!("member:{n:012}").as_bytes());
}

pub fn scored_member(n: u64, request: &mut Request) {
    request.word((scattered(n) % 1_000_000_000).to_string().as_bytes());
    member(n, request);
}

pub fn entry(n: u64, request: &mut Request) {
    request.word(format!("1-{}", n + 1).as_bytes());
    hash_field(n % 5, request);
}

pub fn place(n: u64, request: &mut Request) {
    let degrees = |bits: u64, span: u64| (bits % (span * 1000)) as f64 / 1000.0;
    request.word(format!("{}", degrees(scattered(n), 40)).as_bytes());
    request.word(format!("{}", degrees(scattered(n + 7), 40) + 20.0).as_bytes());
    member(n, request);
}

/// The data sets whose memory is compared.
pub static SHAPES: [Shape; 8] = [
    Shape::many("1 million hashes of 5 fields", 1_000_000, 5, "hset", hash_field),
    Shape::many("1 million sets of 10 integers", 1_000_000, 10, "sadd", integer),
    Shape::many("100,000 lists of 50 elements", 100_000, 50, "rpush", member),
    Shape::one("a sorted set of 5 million", 5_000_000, "zadd", scored_member),
    Shape::one("a set of 5 million", 5_000_000, "sadd", member),
    Shape::one("a hash of 5 million", 5_000_000, "hset", hash_field),
    Shape {
        chunk: 1,
        ..Shape::many("1 million streams of 5 entries", 1_000_000, 5, "xadd", entry)
    },
    Shape {
        expires: true,
        ..Shape::many("1 million fields with a TTL", 200_000, 5, "hset", hash_field)
    },
];

/// The large collections, one of each type.
pub static LARGE: [Shape; 5] = [
    Shape::one("list", 5_000_000, "rpush", member),
    Shape::one("set", 5_000_000, "sadd", member),
    Shape::one("sorted set", 5_000_000, "zadd", scored_member),
    Shape::one("hash", 5_000_000, "hset", hash_field),
    Shape::one("stream", 5_000_000, "xadd", entry),
];

/// Sends requests in batches, one on its way while the replies to the one before are read.
pub fn pipeline(client: Client, count: u64, write: impl Fn(u64, &mut Vec<u8>)) -> Result<()> {
    let mut stream = client.into_stream();
    let (mut requests, mut replies) = (Vec::new(), Decoder::default());
    let (mut sent, mut done) = (0, 0);
    while done < count {
        let next = (sent + BATCH).min(count);
        requests.clear();
        (sent..next).for_each(|number| write(number, &mut requests));
        stream.write_all(&requests)?;
        let answered = if next == count { count } else { sent };
        read_replies(&mut stream, &mut replies, answered - done)?;
        (sent, done) = (next, answered);
    }
    Ok(())
}

fn read_replies(stream: &mut impl Read, replies: &mut Decoder, count: u64) -> Result<()> {
    let mut left = count;
    let mut chunk = [0; 16 * 1024];
    while left > 0 {
        if let Some(reply) = replies.next_value()? {
            ensure!(!reply.is_error(), "a request was answered with {reply:?}");
            left -= 1;
            continue;
        }
        let len = stream.read(&mut chunk)?;
        ensure!(len > 0, "the server closed the connection");
        replies.feed(&chunk[..len]);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_hold_every_element_once() {
        let shape = Shape::one("x", 120, "sadd", member);
        let mut out = Vec::new();
        (0..3).for_each(|part| shape.write(0, part, &mut out));
        let text = String::from_utf8(out).expect("printable");
        assert_eq!(text.matches("$19\r\nmember:").count(), 120);
        assert!(text.starts_with("*52\r\n$4\r\nsadd\r\n$16\r\nkey:000000000000\r\n"));
        assert!(text.contains("*22\r\n"), "the rest is a shorter request");
    }
}
