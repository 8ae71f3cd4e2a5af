//! A connection to a simulated server: calls go, answers come.

use std::net::{IpAddr, SocketAddr};

use kvasir_reactor::sim::{End, Network, Received};
use kvasir_resp::decode::Decoder;
use kvasir_resp::value::Value;

#[derive(Default)]
pub struct Connection {
    /// While it is open.
    end: Option<End>,
    decoder: Decoder,
}

impl Connection {
    pub fn open(network: &Network, from: IpAddr, to: SocketAddr) -> Connection {
        Connection { end: Some(network.connect(from, to)), decoder: Decoder::default() }
    }

    pub fn is_open(&self) -> bool {
        self.end.is_some()
    }

    pub fn close(&mut self) {
        self.end = None;
    }

    /// When something arrives, if anything is on its way.
    pub fn next_ns(&self) -> Option<u64> {
        self.end.as_ref().and_then(End::next_ns)
    }

    pub fn send(&self, bytes: &[u8]) {
        let end = self.end.as_ref().expect("it is open");
        let sent = end.send(bytes);
        assert_eq!(sent, bytes.len(), "there is room for what is sent when all is answered");
    }

    /// The next answer of those that have arrived. Where the server has closed it, it is closed.
    pub fn next_answer(&mut self) -> Result<Option<Value>, String> {
        loop {
            if let Some(value) = self.decoder.next_value().map_err(|error| error.to_string())? {
                return Ok(Some(value));
            }
            match self.end.as_ref().map(|end| end.receive(usize::MAX)) {
                None | Some(Received::Nothing) => return Ok(None),
                Some(Received::Open) => {}
                Some(Received::Bytes(bytes)) => self.decoder.feed(&bytes),
                Some(Received::End | Received::Reset) => self.close(),
            }
        }
    }
}
