//! Pure containers and algorithms: slot lock, gate, slot table, record, listpack, crc16.
//!
//! Knows no command and no protocol. With `reactor` the only crate that contains `unsafe`.

pub(crate) mod bucket;
pub mod crc16;
pub mod gate;
pub mod gate_cell;
pub mod glob;
pub mod hash;
pub mod listpack;
pub mod lock;
pub mod prefetch;
pub mod record;
pub mod slab;
pub mod slot;
pub mod table;

mod sync;
