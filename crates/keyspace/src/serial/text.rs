//! Strings.

use std::sync::Arc;

use super::{Reader, SerialError, Value, Writer};
use crate::value::{Object, Record, SHARED_TEXT_MIN, Tag, Text};
use crate::view::Env;

pub(super) const TYPE: u8 = 0;

/// LZF is written as it is kept; what is kept in another form is decompressed.
pub(super) fn write(record: Record<'_>, writer: &mut Writer) {
    match Text::of(record).expect("the caller looked") {
        Text::Compressed(text) if let Some(lzf) = text.lzf() => writer.lzf(lzf, text.text_len()),
        text => writer.string(&text.bytes()),
    }
}

/// LZF is kept as it was read, if it is to be kept at all.
pub(super) fn read(reader: &mut Reader<'_>, env: &Env) -> Result<Value, SerialError> {
    let (text, lzf) = reader.string_and_lzf()?;
    let compressed = match lzf {
        Some(lzf) => env.compression.compress_from_lzf(&text, lzf),
        None => env.compression.compress(&text),
    };
    Ok(match compressed {
        Some(compressed) => Value::bytes(Tag::CompressedText, compressed),
        None if text.len() < SHARED_TEXT_MIN => Value::bytes(Tag::Text, text.into_owned()),
        None => Value::object(Tag::Text, Object::Text(Arc::new(text.into_owned()))),
    })
}
