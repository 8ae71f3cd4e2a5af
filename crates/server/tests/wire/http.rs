//! HTTP as a client that looks at every byte speaks it, for tests of metrics and of the console.

use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::net::TcpStream;

use crate::harness::{DEADLINE, Server, Stream};

/// An answer.
pub struct Page {
    pub status: u16,
    /// By names in lower case.
    pub fields: BTreeMap<String, String>,
    pub body: String,
}

/// A connection.
pub struct Http(Box<dyn Stream>);

impl Http {
    pub fn connect(port: u16) -> Http {
        Http::over(open(port))
    }

    pub fn over(stream: impl Stream + 'static) -> Http {
        Http(Box::new(stream))
    }

    pub fn send(&mut self, bytes: &[u8]) {
        self.0.write_all(bytes).expect("the server reads");
    }

    /// The next answer; none when the connection is closed.
    pub fn read(&mut self) -> Option<Page> {
        let mut head = Vec::new();
        while !head.ends_with(b"\r\n\r\n") {
            let mut byte = [0];
            match self.0.read(&mut byte) {
                Ok(1) => head.push(byte[0]),
                _ if head.is_empty() => return None,
                other => panic!("half an answer: {other:?} {head:?}"),
            }
        }
        let head = String::from_utf8(head).expect("a head is text");
        let mut lines = head.trim_end().split("\r\n");
        let status = lines.next().and_then(|line| line.split(' ').nth(1)?.parse().ok());
        let fields = lines.map(|line| line.split_once(": ").expect("a field"));
        let fields: BTreeMap<_, _> =
            fields.map(|(name, value)| (name.to_lowercase(), value.to_owned())).collect();
        let mut body = vec![0; fields["content-length"].parse().expect("a length")];
        self.0.read_exact(&mut body).expect("a whole body");
        let body = String::from_utf8(body).expect("text");
        Some(Page { status: status.expect("a status"), fields, body })
    }

    /// Asks for a path, with further fields.
    pub fn get(&mut self, path: &str, fields: &str) -> Page {
        self.send(format!("GET {path} HTTP/1.1\r\nHost: localhost\r\n{fields}\r\n").as_bytes());
        self.read().expect("an answer")
    }
}

pub fn open(port: u16) -> TcpStream {
    let stream = TcpStream::connect(("127.0.0.1", port)).expect("the server listens");
    stream.set_read_timeout(Some(DEADLINE)).expect("a timeout can be set");
    stream.set_write_timeout(Some(DEADLINE)).expect("a timeout can be set");
    stream
}

/// Asks on a connection of its own.
pub fn get(port: u16, path: &str) -> Page {
    Http::connect(port).get(path, "Connection: close\r\n")
}

/// A server with HTTP at this port.
pub fn serve(backend: &'static str, port: u16, more: &[&str]) -> Server {
    let port = port.to_string();
    Server::kvasir(backend, &[&["--metrics-port", &port], more].concat())
}
