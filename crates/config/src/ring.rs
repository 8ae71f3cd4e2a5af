//! The options of rings, by which clients of the same machine speak without system calls.

use crate::kind::Kind;
use crate::row::{Group, Row};
use crate::table::{field, integer};

/// How large rings are, how many, and how long is looked at them.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct RingConfig {
    /// Bytes of each way, where the client asks for no other.
    pub size: u64,
    /// What a client may ask for.
    pub size_max: u64,
    pub clients_max: u32,
    /// Microseconds.
    pub spin: u32,
}

pub const SIZE: Row = Row::new(
    "ring-size",
    Group::Network,
    Kind::Memory { min: 4096, max: 1 << 30 },
    "256kb",
    field!(ring.size),
    "\
Bytes of each of the two ways of a ring (CLIENT RING), where the client asks
for no other size; rounded up to a power of two. A ring that fits into the
processor's cache is fastest. Memory is taken when it is first used.",
);

pub const SIZE_MAX: Row = Row::new(
    "ring-size-max",
    Group::Network,
    Kind::Memory { min: 4096, max: 1 << 30 },
    "16mb",
    field!(ring.size_max),
    "The largest size that a client may ask for.",
);

pub const CLIENTS_MAX: Row = Row::new(
    "ring-clients-max",
    Group::Network,
    integer(0, 65_536),
    "128",
    field!(ring.clients_max),
    "\
Connections that may have a ring at a time; each takes two more descriptors. 0:
none may.",
)
.at_start();

pub const SPIN: Row = Row::new(
    "ring-spin",
    Group::Network,
    integer(0, 1000),
    "20",
    field!(ring.spin),
    "\
Microseconds for which a worker, once a ring has brought something, looks
whether another request comes before it sleeps. It takes processor time for a
shorter way; where it finds nothing it is done ever more seldom. On a machine
of one core, and with 0, never.",
)
.at_start();
