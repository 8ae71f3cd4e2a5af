//! Strings.

use std::sync::Arc;

use super::{Reader, SerialError, Value, Writer};
use crate::value::{Object, Record, SHARED_TEXT_MIN, Tag, Text};

pub(super) const TYPE: u8 = 0;

pub(super) fn write(record: Record<'_>, writer: &mut Writer) {
    writer.string(Text::of(record).expect("the caller looked").bytes());
}

pub(super) fn read(reader: &mut Reader<'_>) -> Result<Value, SerialError> {
    let text = reader.string()?.into_owned();
    Ok(match text.len() {
        ..SHARED_TEXT_MIN => Value::bytes(Tag::Text, text),
        _ => Value::object(Tag::Text, Object::Text(Arc::new(text))),
    })
}
