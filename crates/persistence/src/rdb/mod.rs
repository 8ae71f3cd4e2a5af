//! RDB files, as Redis up to 8 and Valkey 9 write them.
//!
//! | Bytes | Meaning |
//! |---|---|
//! | `REDIS` and 4 digits, or `VALKEY` and 3 | the version |
//! | 250, name, value | an auxiliary field: who wrote the file, when, with what in mind |
//! | 245, code | a library of functions |
//! | 247, module, data | what a module keeps beside its values |
//! | 254, number | what follows is in this database |
//! | 251, two numbers | keys of the database, and how many of them expire: a hint |
//! | 244, three numbers | a slot, its keys, and how many of them expire: a hint |
//! | 252, 8 bytes; 253, 4 bytes | when the next key expires, in ms or s, little endian |
//! | 248, number; 249, 1 byte | for how long, in s, the next key was idle; how often it was used |
//! | 250, `kvasir-item`, number | what memcached's clients know of the next key: `item::Item::notes` |
//! | type, key, body | a value (`kvasir_keyspace::serial`) |
//! | 255 | the end; from version 5 on 8 bytes follow, little endian: the CRC64 of all before, or 0 |
//!
//! Numbers and strings without a size are those of `serial`.

mod encode;
mod frame;
mod header;
mod module;

pub use encode::Encoder;
pub use frame::{Entry, Frame, Item, Usage, frame};
pub use header::{HEADER_SIZE, header, parse_header};
pub use module::{module_name, unknown_module};

/// Bytes of the checksum behind the end.
pub const CHECKSUM_SIZE: usize = 8;

const FREQUENCY: u8 = 249;
const IDLE: u8 = 248;
const SLOT_HINT: u8 = 244;
const LIBRARY: u8 = 245;
const LIBRARY_OF_A_CANDIDATE: u8 = 246;
/// The field that tells of the next key what memcached's clients know of it.
const ITEM: &[u8] = b"kvasir-item";
const MODULE_AUX: u8 = 247;
const AUX: u8 = 250;
const SIZES: u8 = 251;
const EXPIRY_MS: u8 = 252;
const EXPIRY_S: u8 = 253;
const DATABASE: u8 = 254;
pub(crate) const END: u8 = 255;

/// Types of values that modules made, in the format of release candidates and in the final one.
const MODULE_VALUE_OLD: u8 = 6;
const MODULE_VALUE: u8 = 7;

/// The first version whose files end with a checksum.
pub fn has_checksum(version: kvasir_keyspace::serial::Version) -> bool {
    version.0 >= 5
}
