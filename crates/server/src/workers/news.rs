//! What the calls of a primary's stream have done, for a worker to tell those whom it concerns.

use kvasir_keyspace::event::Event;
use kvasir_keyspace::waiting::Ready;
use kvasir_pubsub::Kind;

/// In the order in which it happened.
#[derive(Default)]
pub struct News {
    pub items: Vec<Item>,
    /// Keys that calls may wait for.
    pub ready: Vec<Ready>,
}

pub enum Item {
    Event(Event),
    Message(Kind, Vec<u8>, Vec<u8>),
    /// Every key of a database is another than before.
    Flushed,
}

impl News {
    pub fn is_empty(&self) -> bool {
        self.items.is_empty() && self.ready.is_empty()
    }
}
