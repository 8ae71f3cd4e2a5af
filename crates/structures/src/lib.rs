//! Pure containers and algorithms: slot lock, gate, slot table, record, listpack, crc16.
//!
//! Knows no command and no protocol. With `reactor` the only crate that contains `unsafe`.

pub mod crc16;
pub mod gate;
pub mod glob;
pub mod listpack;
pub mod lock;

mod sync;
