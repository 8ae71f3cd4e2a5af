//! A connection to the node that slots go to: requests, and answers in their order.

use std::time::Duration;

use kvasir_config::Config;
use kvasir_reactor::clock;
use kvasir_resp::encode::encode_request;

use crate::cluster::hands::{Hands, Wire};
use crate::following::wire::is_pause;

/// An answer is a line.
const ANSWER_MAX: usize = 64 << 10;

pub struct Peer {
    wire: Box<dyn Wire>,
    received: Vec<u8>,
    /// Requests whose answers have not come.
    unanswered: usize,
}

/// The link is of no use any more.
pub struct Lost(pub String);

impl Peer {
    pub async fn connect(
        hands: &mut dyn Hands,
        host: &str,
        port: u16,
        config: &Config,
        patience: Duration,
    ) -> Result<Peer, Lost> {
        let wire = hands.connect(host, port, config, patience).await.map_err(Lost)?;
        Ok(Peer { wire, received: Vec::new(), unanswered: 0 })
    }

    /// Sends a request, whose answer is waited for later; while the other side takes no more that
    /// is tried for as long as that, and as it is wanted.
    pub async fn send(
        &mut self,
        words: &[&[u8]],
        patience: Duration,
        is_wanted: impl Fn() -> bool,
    ) -> Result<(), Lost> {
        let (request, mut sent, start) = (encode_request(words), 0, Start::now());
        while sent < request.len() {
            match self.wire.write(&request[sent..]).await {
                Ok(0) => return Err(Lost("it takes nothing any more".into())),
                Ok(count) => sent += count,
                Err(error) if is_pause(error.kind()) => start.check(patience, &is_wanted)?,
                Err(error) => return Err(Lost(error.to_string())),
            }
        }
        while let Err(error) = self.wire.flush() {
            if !is_pause(error.kind()) {
                return Err(Lost(error.to_string()));
            }
            start.check(patience, &is_wanted)?;
        }
        self.unanswered += 1;
        Ok(())
    }

    pub fn unanswered(&self) -> usize {
        self.unanswered
    }

    /// The next answer, waited for as long as that, while it is wanted.
    pub async fn answer(
        &mut self,
        patience: Duration,
        is_wanted: impl Fn() -> bool,
    ) -> Result<Answer, Lost> {
        let start = Start::now();
        loop {
            if let Some(len) = self.received.iter().position(|byte| *byte == b'\n') {
                let line: Vec<u8> = self.received.drain(..=len).collect();
                self.unanswered = self.unanswered.saturating_sub(1);
                return Ok(Answer(String::from_utf8_lossy(&line).into_owned()));
            }
            let mut bytes = [0; 4096];
            match self.wire.read(&mut bytes).await {
                Ok(0) => return Err(Lost("it has closed the connection".into())),
                Ok(count) => self.received.extend_from_slice(&bytes[..count]),
                Err(error) if is_pause(error.kind()) => {}
                Err(error) => return Err(Lost(error.to_string())),
            }
            if self.received.len() > ANSWER_MAX {
                return Err(Lost("its answer is too long".into()));
            }
            start.check(patience, &is_wanted)?;
        }
    }
}

/// Since when something is waited for, by the clock that nobody sets.
#[derive(Clone, Copy)]
pub struct Start(u64);

impl Start {
    pub fn now() -> Start {
        Start(clock::monotonic_ns())
    }

    pub fn elapsed(self) -> Duration {
        Duration::from_nanos(clock::monotonic_ns().saturating_sub(self.0))
    }

    fn check(self, patience: Duration, is_wanted: &impl Fn() -> bool) -> Result<(), Lost> {
        if self.elapsed() > patience {
            return Err(Lost("it does not answer".into()));
        }
        if is_wanted() { Ok(()) } else { Err(Lost("it is not wanted any more".into())) }
    }
}

/// A line, with its end.
pub struct Answer(pub String);

impl Answer {
    pub fn is_error(&self) -> bool {
        self.0.starts_with('-')
    }

    pub fn integer(&self) -> Option<u64> {
        self.0.strip_prefix(':')?.trim_end().parse().ok()
    }
}
