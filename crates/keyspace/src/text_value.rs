//! Changing strings where they stand.
//!
//! A short string stands in its record, a long one beside it, shared with replies and copies until
//! it changes. Once changed in place a string is "raw" for OBJECT ENCODING, and not compressed any
//! more (`compression` says why).

use std::sync::Arc;

use kvasir_structures::record::{BodyMut, NewBody};

use crate::compression;
use crate::error::Error;
use crate::found::Found;
use crate::value::{Object, SHARED_TEXT_MIN, Tag, Text};
use crate::view::{Env, View};

/// A string to be changed in place; made empty unless it `exists`. The caller has checked the type.
pub fn find_or_create<'v>(view: &'v mut View<'_, '_>, key: usize, exists: bool) -> Found<'v> {
    if !exists {
        view.put(key, Tag::RawText, NewBody::Bytes(b""), None);
    }
    view.find(key).expect("it was there or was just made")
}

/// Brings a string to `len` bytes, new ones zero, and lets `change` at them. A string that stands
/// outside of its record is changed where it is unless a reply still sends it, and its room
/// doubles as it grows, so many small APPENDs copy little.
pub fn edit<R>(found: &mut Found<'_>, len: usize, change: impl FnOnce(&mut [u8]) -> R) -> R {
    if let Ok(Text::Compressed(text)) = Text::of(found.record()) {
        let mut bytes = Vec::with_capacity(text.text_len().max(len));
        text.append_to(&mut bytes);
        bytes.resize(len, 0);
        let result = change(&mut bytes);
        replace(found, bytes);
        return result;
    }
    let mut bytes = match found.occupied.record_mut().body_mut() {
        BodyMut::Object(Object::Text(text)) => {
            let text = Arc::make_mut(text);
            text.resize(len, 0);
            return change(text);
        }
        BodyMut::Object(_) => unreachable!("the caller checked the type"),
        BodyMut::Bytes(bytes) if bytes.len() == len => {
            let result = change(bytes);
            found.occupied.record_mut().set_tag(Tag::RawText as u8);
            return result;
        }
        BodyMut::Bytes(old) => {
            // Zeroed memory costs nothing until it is touched: SETBIT may ask for a lot of it.
            let mut bytes = vec![0; len];
            let kept = old.len().min(len);
            bytes[..kept].copy_from_slice(&old[..kept]);
            bytes
        }
    };
    let result = change(&mut bytes);
    replace(found, bytes);
    result
}

/// Gives a string that is changed other bytes and keeps its expiry.
pub fn replace(found: &mut Found<'_>, bytes: Vec<u8>) {
    if bytes.len() < SHARED_TEXT_MIN {
        return found.set_body(Tag::RawText, NewBody::Bytes(&bytes));
    }
    let object = Box::new(Object::Text(Arc::new(bytes)));
    found.set_body(Tag::RawText, NewBody::Object(object));
}

/// Sets a key to a string that was computed, without a copy if it is long.
pub fn put(view: &mut View<'_, '_>, key: usize, bytes: Vec<u8>) {
    if let Some(compressed) = view.env.compression.compress(&bytes) {
        return view.put(key, Tag::CompressedText, compression::body(&compressed), None);
    }
    if bytes.len() < SHARED_TEXT_MIN {
        return view.put(key, Tag::RawText, NewBody::Bytes(&bytes), None);
    }
    let object = Box::new(Object::Text(Arc::new(bytes)));
    view.put(key, Tag::RawText, NewBody::Object(object), None);
}

/// Fails if a string of `len` bytes that gets `more` would be too long.
pub fn check_len(env: &Env, len: usize, more: usize) -> Result<(), Error> {
    match len.checked_add(more) {
        Some(total) if total <= env.text_len_max => Ok(()),
        _ => Err(Error::TOO_LONG),
    }
}
