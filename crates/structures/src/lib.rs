//! Pure containers and algorithms: slot lock, gate, log, slot table, record, listpack, intset,
//! crc16.
//!
//! Knows no command and no protocol, and no time but what its own work takes (`huge_pages`). With
//! `reactor` and `lua-stack` the only crate that contains `unsafe`.
//! Under `--cfg loom` only what loom models is built: its locks cannot stand in statics.

#[cfg(not(loom))]
pub mod background;
pub mod bits;
#[cfg(not(loom))]
pub(crate) mod bucket;
#[cfg(not(loom))]
mod buffer;
#[cfg(not(loom))]
pub mod compressed;
pub mod crc16;
pub mod crc64;
#[cfg(not(loom))]
pub mod directory;
pub mod gate;
#[cfg(not(loom))]
pub mod gate_cell;
pub mod geohash;
pub mod glob;
pub mod hash;
pub mod heap;
pub mod held;
#[cfg(not(loom))]
pub mod huge_pages;
pub mod hyperloglog;
pub mod intset;
pub mod listpack;
pub mod lock;
pub mod locks;
pub mod log;
pub mod lzf;
pub mod manners;
#[cfg(not(loom))]
pub mod ordered_set;
#[cfg(not(loom))]
pub mod packed;
#[cfg(not(loom))]
pub mod packing;
pub mod prefetch;
#[cfg(not(loom))]
pub mod quicklist;
#[cfg(not(loom))]
pub mod record;
#[cfg(not(loom))]
pub mod slab;
#[cfg(not(loom))]
pub mod slot;
#[cfg(not(loom))]
pub mod stream;
pub mod sums;
#[cfg(not(loom))]
pub mod table;
pub mod ziplist;

mod shared;
mod sync;
