//! A connection without a socket: bytes arrive in pieces, requests come out.
//!
//! Shared by the fuzz target `request` and the property test `tests/pieces.rs`. Beside collecting
//! what the parser says, it asserts what the parser promises whatever the bytes are.

use kvasir_resp::args::{Args, Span};
use kvasir_resp::request::{Limits, Parsed, Parser, ProtocolError};

/// What the parser said, and how many bytes of the stream it had consumed by then.
#[derive(Debug, PartialEq, Eq)]
pub enum Event {
    Request(usize, Vec<Vec<u8>>),
    Inline(usize, Vec<Vec<u8>>),
    Nothing(usize),
    Error(usize, ProtocolError),
}

/// Feeds `stream` in pieces that end at `cuts` (ascending) and at the stream's end.
pub fn run(stream: &[u8], cuts: &[usize], limits: &Limits) -> Vec<Event> {
    let mut connection = Connection::default();
    for end in cuts.iter().copied().filter(|cut| *cut < stream.len()).chain([stream.len()]) {
        if !connection.receive(stream, end, limits) {
            break;
        }
    }
    connection.events
}

#[derive(Default)]
struct Connection {
    parser: Parser,
    events: Vec<Event>,
    spans: Vec<Span>,
    scratch: Vec<u8>,
    /// The first byte of the stream that has not been consumed.
    start: usize,
    /// What the parser said is needed at least.
    wanted: usize,
}

impl Connection {
    /// Parses what can be parsed of `stream` up to `end`. False after a protocol error.
    fn receive(&mut self, stream: &[u8], end: usize, limits: &Limits) -> bool {
        while self.start < end {
            let input = &stream[self.start..end];
            self.spans.clear();
            self.scratch.clear();
            let parsed = self.parser.parse(input, &mut self.spans, &mut self.scratch, limits);
            match parsed {
                Err(error) => {
                    assert!(self.wanted <= input.len(), "{} bytes were wanted", self.wanted);
                    self.check_idle();
                    self.events.push(Event::Error(self.start, error));
                    return false;
                }
                Ok(Parsed::Incomplete { wanted }) => {
                    self.check_incomplete(input.len(), wanted);
                    return true;
                }
                Ok(Parsed::Nothing { consumed }) => {
                    self.check_idle();
                    self.consume(consumed, input.len());
                    self.events.push(Event::Nothing(self.start));
                }
                Ok(Parsed::Inline { consumed }) => {
                    let args = self.args(&self.scratch, self.wanted > 0);
                    self.consume(consumed, input.len());
                    self.events.push(Event::Inline(self.start, args));
                }
                Ok(Parsed::Request { consumed }) => {
                    let args = self.args(input, self.wanted > 0);
                    self.consume(consumed, input.len());
                    self.events.push(Event::Request(self.start, args));
                }
            }
        }
        true
    }

    fn consume(&mut self, consumed: usize, available: usize) {
        assert!((1..=available).contains(&consumed));
        assert!(self.wanted <= available, "nothing could be done before {} bytes", self.wanted);
        assert_eq!(self.parser.size_bytes(), 0, "a request left something behind");
        self.start += consumed;
        self.wanted = 0;
    }

    /// The arguments that the parser found.
    fn args(&self, bytes: &[u8], resumed: bool) -> Vec<Vec<u8>> {
        let mut args: Vec<_> = Args::new(bytes, &self.spans).iter().map(<[u8]>::to_vec).collect();
        // The bug that the fuzzer must find.
        if cfg!(feature = "canary") && resumed && args.len() == 3 && args[0] == b"SET" {
            args.pop();
        }
        args
    }

    /// Neither an error nor an empty request leaves arguments behind.
    fn check_idle(&self) {
        assert!(self.spans.is_empty() && self.scratch.is_empty());
        assert_eq!(self.parser.size_bytes(), 0);
    }

    fn check_incomplete(&mut self, available: usize, wanted: usize) {
        assert!(wanted > available);
        assert!(wanted >= self.wanted, "a longer input wants less");
        assert!(self.spans.is_empty() && self.scratch.is_empty());
        let size_max = 4 * available + 256;
        assert!(self.parser.size_bytes() <= size_max, "{} bytes held", self.parser.size_bytes());
        self.wanted = wanted;
    }
}
