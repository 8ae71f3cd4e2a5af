//! Cutting a file into what stands in it, without making values: that is left to other threads.

use std::borrow::Cow;

use kvasir_keyspace::serial::{Reader, SerialError, skip_value};
use kvasir_resp::number::parse_integer;

use super::module::skip_data;
use super::{
    AUX, DATABASE, END, EXPIRY_MS, EXPIRY_S, FREQUENCY, IDLE, ITEM, LIBRARY,
    LIBRARY_OF_A_CANDIDATE, MODULE_AUX, MODULE_VALUE, MODULE_VALUE_OLD, SIZES, SLOT_HINT,
};

/// One thing of a file and how many bytes it takes.
#[derive(Debug, PartialEq, Eq)]
pub struct Frame<'a> {
    pub item: Item<'a>,
    pub size: usize,
}

#[derive(Debug, PartialEq, Eq)]
pub enum Item<'a> {
    Aux {
        name: Cow<'a, [u8]>,
        value: Cow<'a, [u8]>,
    },
    Library(Cow<'a, [u8]>),
    Database(u64),
    /// Says nothing that has to be known.
    Hint,
    Entry(Entry),
    /// The key of a collection that turned out to have no elements. No frame is read as that.
    Empty(Cow<'a, [u8]>),
    /// What a module with this number keeps; a value of its own if there is a key.
    OfModule {
        key: Option<Cow<'a, [u8]>>,
        module: u64,
    },
    End,
}

impl Item<'_> {
    /// The same, whatever becomes of the bytes that it was read from.
    pub fn into_owned(self) -> Item<'static> {
        let own = |text: Cow<'_, [u8]>| Cow::Owned(text.into_owned());
        match self {
            Item::Aux { name, value } => Item::Aux { name: own(name), value: own(value) },
            Item::Library(code) => Item::Library(own(code)),
            Item::OfModule { key, module } => Item::OfModule { key: key.map(own), module },
            Item::Database(index) => Item::Database(index),
            Item::Entry(entry) => Item::Entry(entry),
            Item::Empty(key) => Item::Empty(own(key)),
            Item::Hint => Item::Hint,
            Item::End => Item::End,
        }
    }
}

/// A key and its value.
#[derive(Debug, PartialEq, Eq, Clone, Copy)]
pub struct Entry {
    /// Where the type stands, key and body behind it, from the start of the frame.
    pub offset: usize,
    pub expiry_ms: Option<u64>,
    pub usage: Usage,
    /// What memcached's clients know of it: `item::Item::notes`.
    pub notes: u64,
}

/// What a file knows of the use of a key.
#[derive(Debug, PartialEq, Eq, Clone, Copy, Default)]
pub enum Usage {
    #[default]
    Unknown,
    IdleS(u64),
    Frequency(u8),
}

/// The thing that stands first in `bytes`. If only its beginning is there, the error says so.
pub fn frame(bytes: &[u8], text_len_max: usize) -> Result<Frame<'_>, SerialError> {
    let mut reader = Reader::new(bytes, text_len_max);
    let item = read(&mut reader)?;
    Ok(Frame { item, size: reader.offset() })
}

fn read<'a>(reader: &mut Reader<'a>) -> Result<Item<'a>, SerialError> {
    let mut entry = Entry { offset: 0, expiry_ms: None, usage: Usage::Unknown, notes: 0 };
    loop {
        entry.offset = reader.offset();
        match reader.byte()? {
            EXPIRY_MS => entry.expiry_ms = Some(moment(i64::from_le_bytes(reader.array()?))),
            EXPIRY_S => {
                let seconds = i32::from_le_bytes(reader.array()?);
                entry.expiry_ms = Some(moment(i64::from(seconds) * 1000));
            }
            IDLE => entry.usage = Usage::IdleS(reader.number()?),
            FREQUENCY => entry.usage = Usage::Frequency(reader.byte()?),
            AUX => {
                let (name, value) = (reader.string()?, reader.string()?);
                if *name != *ITEM {
                    return Ok(Item::Aux { name, value });
                }
                let notes = parse_integer(&value).and_then(|notes| u64::try_from(notes).ok());
                entry.notes = notes.ok_or(reader.error("notes of an item that are no number"))?;
            }
            MODULE_VALUE => {
                let key = Some(reader.string()?);
                return skip_data(reader).map(|module| Item::OfModule { key, module });
            }
            MODULE_VALUE_OLD => return Err(reader.error("a module's value in a format of 2017")),
            kind @ LIBRARY_OF_A_CANDIDATE.. | kind @ (SLOT_HINT | LIBRARY) => {
                return beside_keys(kind, reader);
            }
            value_type => {
                reader.skip_string()?;
                skip_value(value_type, reader)?;
                return Ok(Item::Entry(entry));
            }
        }
    }
}

/// What is no key.
fn beside_keys<'a>(kind: u8, reader: &mut Reader<'a>) -> Result<Item<'a>, SerialError> {
    Ok(match kind {
        LIBRARY => Item::Library(reader.string()?),
        DATABASE => Item::Database(reader.number()?),
        SIZES => {
            reader.number()?;
            reader.number()?;
            Item::Hint
        }
        SLOT_HINT => {
            reader.number()?;
            reader.number()?;
            reader.number()?;
            Item::Hint
        }
        MODULE_AUX => Item::OfModule { key: None, module: skip_data(reader)? },
        END => Item::End,
        _ => return Err(reader.error("functions as a release candidate of Redis 7.0 wrote them")),
    })
}

/// A key whose time is before 1970 has expired as any other.
fn moment(time_ms: i64) -> u64 {
    u64::try_from(time_ms).unwrap_or(0).max(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn item(bytes: &[u8]) -> Item<'_> {
        let Frame { item, size } = frame(bytes, 100).unwrap_or_else(|error| panic!("{error}"));
        assert_eq!(size, bytes.len(), "{}", bytes.escape_ascii());
        for len in 0..size {
            let error = frame(&bytes[..len], 100).expect_err("it is cut");
            assert!(error.is_end_missing(), "{}: {error}", bytes[..len].escape_ascii());
        }
        item
    }

    fn entry(offset: usize, expiry_ms: Option<u64>, usage: Usage) -> Item<'static> {
        Item::Entry(Entry { offset, expiry_ms, usage, notes: 0 })
    }

    #[test]
    fn things_are_told_apart() {
        let text = |text: &'static [u8]| Cow::Borrowed(text);
        assert_eq!(item(b"\xfa\x01a\x01b"), Item::Aux { name: text(b"a"), value: text(b"b") });
        assert_eq!(item(b"\xf5\x02#!"), Item::Library(text(b"#!")));
        assert_eq!(item(b"\xfe\x09"), Item::Database(9));
        assert_eq!(item(b"\xfb\x02\x01"), Item::Hint);
        assert_eq!(item(b"\xf4\x01\x02\x03"), Item::Hint);
        assert_eq!(item(b"\xff"), Item::End);
        assert_eq!(item(b"\xf7\x05\x02\x02\0"), Item::OfModule { key: None, module: 5 });
        assert_eq!(item(b"\x07\x01k\x05\0"), Item::OfModule { key: Some(text(b"k")), module: 5 });
    }

    #[test]
    fn entries_have_their_facts_before_them() {
        let unknown = Usage::Unknown;
        assert_eq!(item(b"\0\x01k\x01v"), entry(0, None, unknown));
        assert_eq!(item(b"\xfc\x10\x27\0\0\0\0\0\0\0\x01k\x01v"), entry(9, Some(10_000), unknown));
        assert_eq!(item(b"\xfd\x0a\0\0\0\0\x01k\x01v"), entry(5, Some(10_000), unknown));
        assert_eq!(item(b"\xfd\xff\xff\xff\xff\0\x01k\x01v"), entry(5, Some(1), unknown));
        assert_eq!(item(b"\xf8\x07\0\x01k\x01v"), entry(2, None, Usage::IdleS(7)));
        assert_eq!(item(b"\xf9\x07\0\x01k\x01v"), entry(2, None, Usage::Frequency(7)));
    }

    #[test]
    fn what_is_unknown_is_refused() {
        for bytes in [&b"\x06\x01k"[..], b"\xf6\x01k", b"\x08\x01k", b"\xf3\x01k"] {
            let error = frame(bytes, 100).expect_err("nobody writes that");
            assert!(!error.is_end_missing(), "{}", bytes.escape_ascii());
        }
    }
}
