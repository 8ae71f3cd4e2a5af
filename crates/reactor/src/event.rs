//! What `wait` reports, and the ids by which it names listeners and connections.

use std::io;

use crate::{Buffer, Payload, Socket};

/// A registered connection. The index is dense, so that it can be used as a slab's; once the
/// connection is closed it is given to another with another generation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ConnectionId {
    pub index: u32,
    pub generation: u32,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ListenerId {
    pub index: u32,
    pub generation: u32,
}

#[derive(Debug)]
pub enum Event {
    Accepted {
        listener: ListenerId,
        socket: Socket,
    },
    /// Out of descriptors or memory. Accepting goes on by itself after a rest.
    AcceptFailed {
        listener: ListenerId,
        error: io::Error,
    },
    /// How an attempt to connect has ended. From now on the connection receives and sends; after an
    /// error it is of no use.
    Connected {
        connection: ConnectionId,
        result: io::Result<()>,
    },
    /// The buffer is never empty and has to be recycled.
    Received {
        connection: ConnectionId,
        buffer: Buffer,
    },
    /// Nothing more will be received; comes once, behind everything that was received. What is
    /// being sent goes on. The connection stays until it is closed. `None`: orderly end of stream.
    Closed {
        connection: ConnectionId,
        error: Option<io::Error>,
    },
    /// The payload comes back empty, for its capacity. After an error the connection is of no use.
    Sent {
        connection: ConnectionId,
        payload: Payload,
        result: io::Result<()>,
    },
    Woken,
}
