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

/// The payload of a value, of the oldest version that can hold it; `expiring` if it is a hash whose
/// fields expire.
pub fn dump(record: Record<'_>, expiring: Version) -> Vec<u8> {
    let version = Version::needed_by(record, expiring);
    let mut writer = Writer::new(version);
    write_type(record, &mut writer);
    write_body(record, &mut writer);
    seal(writer, version)
}

/// Ends a payload with its footer.
pub fn seal(mut writer: Writer, version: Version) -> Vec<u8> {
    writer.push(&version.0.to_le_bytes());
    let mut payload = writer.into_bytes();
    let checksum = crc64::update(0, &payload);
    payload.extend(checksum.to_le_bytes());
    payload
}

/// What stands before a footer of a known version and with the right checksum, if that counts.
pub(super) fn split_footer(payload: &[u8], skips_checksum: bool) -> Option<&[u8]> {
    let (guarded, checksum) = payload.split_last_chunk::<CHECKSUM_SIZE>()?;
    let (body, version) = guarded.split_last_chunk::<VERSION_SIZE>()?;
    let is_sound = skips_checksum || crc64::update(0, guarded) == u64::from_le_bytes(*checksum);
    (is_sound && Version(u16::from_le_bytes(*version)).is_known()).then_some(body)
}

/// The value of a payload. What follows the value does not count, as in Redis.
pub fn undump(payload: &[u8], env: &Env) -> Result<Value, DumpError> {
    let value = split_footer(payload, env.skips_checksums).ok_or(DumpError::Footer)?;
    let mut reader = Reader::new(value, env.text_len_max);
    let read = reader.byte().and_then(|type_byte| read_value(type_byte, &mut reader, env));
    read.map_err(DumpError::Value)
}
