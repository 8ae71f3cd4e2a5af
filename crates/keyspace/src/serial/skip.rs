//! Finding where a value ends without making it: what cuts a file into values for several threads.
//!
//! Only lengths are looked at. That a value can be skipped says nothing about whether it is sound.

use super::{Reader, SerialError, hash, hash_expiring, list, set, sorted_set, stream, text};

const TIME_SIZE: usize = size_of::<i64>();
const SCORE_SIZE: usize = size_of::<f64>();

/// Goes past the body of a value of this type. If only its beginning is there, the error says so
/// (`SerialError::is_end_missing`).
pub fn skip_value(type_byte: u8, reader: &mut Reader<'_>) -> Result<(), SerialError> {
    match type_byte {
        text::TYPE
        | list::ZIPLIST
        | set::INTSET
        | set::LISTPACK
        | sorted_set::ZIPLIST
        | sorted_set::LISTPACK
        | hash::ZIPMAP
        | hash::ZIPLIST
        | hash::LISTPACK => reader.skip_string(),
        list::ELEMENTS | list::ZIPLISTS | set::MEMBERS => {
            skip_each(reader, |reader| reader.skip_string())
        }
        list::NODES => skip_each(reader, |reader| {
            reader.number()?;
            reader.skip_string()
        }),
        sorted_set::TEXT_SCORES => skip_each(reader, |reader| {
            reader.skip_string()?;
            sorted_set::read_text(reader).map(|_| ())
        }),
        sorted_set::DOUBLE_SCORES => skip_each(reader, |reader| {
            reader.skip_string()?;
            reader.take(SCORE_SIZE).map(|_| ())
        }),
        hash::PAIRS => skip_each(reader, skip_pair),
        hash_expiring::TIMED => skip_each(reader, |reader| {
            skip_pair(reader)?;
            reader.take(TIME_SIZE).map(|_| ())
        }),
        hash_expiring::RELATIVE => {
            reader.take(TIME_SIZE)?;
            skip_each(reader, |reader| {
                reader.number()?;
                skip_pair(reader)
            })
        }
        hash_expiring::LISTPACK => {
            reader.take(TIME_SIZE)?;
            reader.skip_string()
        }
        type_byte if stream::TYPES.contains(&type_byte) => stream::skip(type_byte, reader),
        _ => Err(reader.error("no such type of value")),
    }
}

fn skip_pair(reader: &mut Reader<'_>) -> Result<(), SerialError> {
    reader.skip_string()?;
    reader.skip_string()
}

/// Goes past a count and what it counts. Each takes a byte at least, so a count of too many ends
/// with the bytes.
pub(super) fn skip_each(
    reader: &mut Reader<'_>,
    mut skip: impl FnMut(&mut Reader<'_>) -> Result<(), SerialError>,
) -> Result<(), SerialError> {
    for _ in 0..reader.number()? {
        skip(reader)?;
    }
    Ok(())
}
