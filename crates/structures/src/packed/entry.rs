//! The bytes of one entry in a page.
//!
//! | Size | Field |
//! |---|---|
//! | 1 | head: 80 expiry, 40 value, 20 outside; lowest 5 bits: length of the key, 31 if longer |
//! | 1-2 | varint: length of the key less 31, if head says 31 |
//! | 1-2 | varint: length of the value, if flag 40 |
//! | 8 | expiry in ms since 1970, little endian, if flag 80 |
//! | | key, then value |
//!
//! With flag 20 head and expiry are followed by a number of 4 bytes, little endian, instead: which
//! of the page's long elements this is. An empty value is none: it has no flag.

use std::sync::Arc;

/// The longest key and value that stand in a page.
pub(super) const INLINE_MAX: usize = 1024;

const HAS_EXPIRY: u8 = 0x80;
const HAS_VALUE: u8 = 0x40;
const OUTSIDE: u8 = 0x20;
const KEY_LEN_MASK: u8 = 0x1f;
const EXPIRY_BYTES: usize = 8;
const NUMBER_BYTES: usize = 4;

/// A key with its value, and when it ends.
#[derive(Clone, Copy, Debug)]
pub struct Entry<'a> {
    pub key: &'a [u8],
    pub value: Value<'a>,
    /// In ms since 1970.
    pub expiry_ms: Option<u64>,
}

/// A value, where it stands.
#[derive(Clone, Copy, Debug)]
pub enum Value<'a> {
    Inline(&'a [u8]),
    /// A long one, or any of a long key, which replies may share.
    Shared(&'a Arc<Vec<u8>>),
}

impl<'a> Value<'a> {
    #[inline]
    pub fn bytes(self) -> &'a [u8] {
        match self {
            Value::Inline(bytes) => bytes,
            Value::Shared(bytes) => bytes,
        }
    }
}

/// What an entry to be written consists of.
#[derive(Clone, Copy)]
pub(super) enum Content<'a> {
    Here { key: &'a [u8], value: &'a [u8] },
    Outside(u32),
}

/// An entry as it stands in its page.
pub(super) struct Packed<'a> {
    pub content: Content<'a>,
    pub expiry_ms: Option<u64>,
    /// Bytes of all of it.
    pub size: usize,
}

/// Whether an element is too long for a page.
pub(super) fn is_long(key: &[u8], value: &[u8]) -> bool {
    key.len().max(value.len()) > INLINE_MAX
}

pub(super) fn size(content: Content<'_>, has_expiry: bool) -> usize {
    let expiry = if has_expiry { EXPIRY_BYTES } else { 0 };
    let rest = match content {
        Content::Outside(_) => NUMBER_BYTES,
        Content::Here { key, value } => {
            let key_len = key.len().checked_sub(KEY_LEN_MASK as usize).map_or(0, varint_size);
            let value_len = if value.is_empty() { 0 } else { varint_size(value.len()) };
            key_len + value_len + key.len() + value.len()
        }
    };
    1 + expiry + rest
}

/// Writes an entry into bytes of exactly its [`size`].
pub(super) fn write(bytes: &mut [u8], content: Content<'_>, expiry_ms: Option<u64>) {
    let mut out = Cursor { bytes, at: 0 };
    let expiry_flag = if expiry_ms.is_some() { HAS_EXPIRY } else { 0 };
    let put_expiry = |out: &mut Cursor<'_>| {
        expiry_ms.into_iter().for_each(|expiry_ms| out.put(&expiry_ms.to_le_bytes()));
    };
    match content {
        Content::Outside(number) => {
            out.put(&[OUTSIDE | expiry_flag]);
            put_expiry(&mut out);
            out.put(&number.to_le_bytes());
        }
        Content::Here { key, value } => {
            let value_flag = if value.is_empty() { 0 } else { HAS_VALUE };
            let short_len = key.len().min(KEY_LEN_MASK as usize);
            out.put(&[expiry_flag | value_flag | short_len as u8]);
            if short_len == KEY_LEN_MASK as usize {
                out.put_varint(key.len() - short_len);
            }
            if !value.is_empty() {
                out.put_varint(value.len());
            }
            put_expiry(&mut out);
            out.put(key);
            out.put(value);
        }
    }
    debug_assert_eq!(out.at, out.bytes.len());
}

/// Changes value and expiry of an entry whose size and flags stay the same.
pub(super) fn overwrite(bytes: &mut [u8], key_len: usize, value: &[u8], expiry_ms: Option<u64>) {
    let value_at = bytes.len() - value.len();
    bytes[value_at..].copy_from_slice(value);
    if let Some(expiry_ms) = expiry_ms {
        let key_at = value_at - key_len;
        bytes[key_at - EXPIRY_BYTES..key_at].copy_from_slice(&expiry_ms.to_le_bytes());
    }
}

/// The entry at the start of `bytes`.
#[inline]
pub(super) fn read(bytes: &[u8]) -> Packed<'_> {
    let head = bytes[0];
    let mut at = 1;
    let (mut key_len, mut value_len) = ((head & KEY_LEN_MASK) as usize, 0);
    if head & KEY_LEN_MASK == KEY_LEN_MASK {
        key_len += read_varint(bytes, &mut at);
    }
    if head & HAS_VALUE != 0 {
        value_len = read_varint(bytes, &mut at);
    }
    let expiry_ms = (head & HAS_EXPIRY != 0).then(|| {
        at += EXPIRY_BYTES;
        u64::from_le_bytes(bytes[at - EXPIRY_BYTES..at].try_into().expect("eight bytes"))
    });
    if head & OUTSIDE != 0 {
        let number = bytes[at..at + NUMBER_BYTES].try_into().expect("four bytes");
        let content = Content::Outside(u32::from_le_bytes(number));
        return Packed { content, expiry_ms, size: at + NUMBER_BYTES };
    }
    let (key, rest) = bytes[at..].split_at(key_len);
    let content = Content::Here { key, value: &rest[..value_len] };
    Packed { content, expiry_ms, size: at + key_len + value_len }
}

/// Lengths up to [`INLINE_MAX`] take two bytes: seven bits each, the low ones first.
fn varint_size(len: usize) -> usize {
    if len < 0x80 { 1 } else { 2 }
}

fn read_varint(bytes: &[u8], at: &mut usize) -> usize {
    let low = bytes[*at] as usize;
    *at += 1;
    if low < 0x80 {
        return low;
    }
    *at += 1;
    (low & 0x7f) | (bytes[*at - 1] as usize) << 7
}

struct Cursor<'a> {
    bytes: &'a mut [u8],
    at: usize,
}

impl Cursor<'_> {
    fn put(&mut self, part: &[u8]) {
        self.bytes[self.at..self.at + part.len()].copy_from_slice(part);
        self.at += part.len();
    }

    fn put_varint(&mut self, len: usize) {
        match len {
            ..0x80 => self.put(&[len as u8]),
            _ => self.put(&[(len & 0x7f) as u8 | 0x80, (len >> 7) as u8]),
        }
    }
}
