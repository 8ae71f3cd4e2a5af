//! DUMP's payload: a value, and a footer that guards it.
//!
//! | Size | Field |
//! |---|---|
//! | 1 | type |
//! | | body |
//! | 2 | version, little endian |
//! | 8 | CRC64 of all before it, little endian |

use kvasir_structures::crc64;

use super::{Reader, SerialError, Value, Version, Writer, read_value, write_body, write_type};
use crate::value::Record;
use crate::view::Env;

const VERSION_SIZE: usize = 2;
const CHECKSUM_SIZE: usize = 8;

/// Why a payload is refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DumpError {
    /// The version is unknown or the checksum is wrong.
    Footer,
    Value(SerialError),
}

/// The payload of a value, of the oldest version that can hold it.
pub fn dump(record: Record<'_>) -> Vec<u8> {
    let version = Version::needed_by(record);
    let mut writer = Writer::new(version);
    write_type(record, &mut writer);
    write_body(record, &mut writer);
    writer.push(&version.0.to_le_bytes());
    let mut payload = writer.into_bytes();
    let checksum = crc64::update(0, &payload);
    payload.extend(checksum.to_le_bytes());
    payload
}

/// The value of a payload. What follows the value does not count, as in Redis.
pub fn undump(payload: &[u8], env: &Env) -> Result<Value, DumpError> {
    let (guarded, checksum) =
        payload.split_last_chunk::<CHECKSUM_SIZE>().ok_or(DumpError::Footer)?;
    let (value, version) = guarded.split_last_chunk::<VERSION_SIZE>().ok_or(DumpError::Footer)?;
    let is_sound = crc64::update(0, guarded) == u64::from_le_bytes(*checksum);
    if !is_sound || !Version(u16::from_le_bytes(*version)).is_known() {
        return Err(DumpError::Footer);
    }
    let mut reader = Reader::new(value, env.text_len_max);
    let read = reader.byte().and_then(|type_byte| read_value(type_byte, &mut reader, env));
    read.map_err(DumpError::Value)
}
