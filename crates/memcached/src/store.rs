//! Storing a value: `set`, `add`, `replace`, `append`, `prepend`, `cas`, and `ms`.

use kvasir_keyspace::event::Class;
use kvasir_keyspace::item::{Age, Item};
use kvasir_keyspace::text_value::{edit, replace};
use kvasir_keyspace::value::Tag;
use kvasir_keyspace::view::View;

use crate::expiry::Expiry;
use crate::fetch::text;
use crate::item::{Count, Cx, say};
use crate::request::{Mode, Store, item_size};

/// What becomes of a value.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Outcome {
    Stored,
    NotStored,
    Exists,
    NotFound,
}

/// What is to be stored, and when.
pub struct New<'a> {
    pub value: &'a [u8],
    pub mode: Mode,
    pub flags: u32,
    pub expiry: Expiry,
    /// Compared, if there is one.
    pub id: Option<u64>,
    /// A value that was made for an older one may be stored, as stale as that.
    pub takes_older: bool,
}

/// What is there.
#[derive(Default)]
struct Old {
    /// How the id that was given compares; none: nothing is there.
    age: Option<Age>,
    item: Item,
    expiry_ms: Option<u64>,
    is_text: bool,
}

impl Old {
    fn of(view: &mut View<'_, '_>, id: Option<u64>) -> Old {
        view.revisit(0).map_or_else(Old::default, |found| Old {
            age: Some(id.map_or(Age::Unknown, |id| found.age_of(id))),
            item: found.item(),
            expiry_ms: found.record().expiry_ms(),
            is_text: found.is_text(),
        })
    }
}

/// Stores a value as a classic command asks for it.
pub fn store(cx: &mut Cx<'_, '_, '_>, value: &[u8], store: Store) {
    let expiry = Expiry::of(store.exptime, cx.now_ms());
    let Store { mode, flags, id, .. } = store;
    let id = Some(id).filter(|_| mode == Mode::Cas);
    let new = New { value, mode, flags, expiry, id, takes_older: false };
    let text = match put(cx, &new) {
        Outcome::Stored => "STORED",
        Outcome::NotStored => "NOT_STORED",
        Outcome::Exists => "EXISTS",
        Outcome::NotFound => "NOT_FOUND",
    };
    say(cx.reply, text, store.is_quiet);
}

/// Refuses a value that is too long. What its key held goes, so that nobody takes it for new.
pub fn refuse(cx: &mut Cx<'_, '_, '_>, is_quiet: bool) {
    (cx.count)(Count::TooLarge);
    delete(cx.view);
    say(cx.reply, "SERVER_ERROR object too large for cache", is_quiet);
}

/// Deletes the key of a call; says whether it was there.
pub fn delete(view: &mut View<'_, '_>) -> bool {
    let was_there = view.delete(0);
    if was_there {
        view.changed(0, Class::GENERIC, "del");
        view.log(&[&[b"DEL", view.key(0)]]);
    }
    was_there
}

/// Stores a value, or says why not.
pub fn put(cx: &mut Cx<'_, '_, '_>, new: &New<'_>) -> Outcome {
    (cx.count)(Count::Sets);
    let old = Old::of(cx.view, new.id);
    let Old { age, item, expiry_ms, is_text } = old;
    match (new.mode, age) {
        (Mode::Set, _) | (Mode::Add, None) | (Mode::Replace, Some(_)) => set(cx.view, new),
        (Mode::Add, Some(_)) => {
            cx.view.revisit(0).expect("it is there").note_use();
            return Outcome::NotStored;
        }
        (Mode::Replace | Mode::Append | Mode::Prepend, None) => return Outcome::NotStored,
        (Mode::Cas, None) => {
            (cx.count)(Count::CasMisses);
            return Outcome::NotFound;
        }
        (Mode::Cas, Some(Age::Same)) => {
            (cx.count)(Count::CasHits);
            set(cx.view, new);
        }
        (Mode::Cas, Some(Age::Older)) if new.takes_older => {
            (cx.count)(Count::CasHits);
            let is_claimed = item.is_claimed;
            let item = Item { is_stale: true, is_claimed, ..Item::with_flags(new.flags) };
            put_item(cx.view, new.value, expiry_ms.map_or(Expiry::Never, Expiry::At), item);
        }
        (Mode::Cas, Some(_)) => {
            (cx.count)(Count::CasBad);
            return Outcome::Exists;
        }
        (Mode::Append | Mode::Prepend, Some(age)) => {
            // An id of 0 compares with nothing.
            if new.id.is_some_and(|id| id != 0) && age != Age::Same {
                return Outcome::Exists;
            }
            if !is_text || !extend(cx, new, item) {
                return Outcome::NotStored;
            }
        }
    }
    Outcome::Stored
}

fn set(view: &mut View<'_, '_>, new: &New<'_>) {
    put_item(view, new.value, new.expiry, Item::with_flags(new.flags));
}

/// Sets the key of a call to a string, and logs it.
pub fn put_item(view: &mut View<'_, '_>, value: &[u8], expiry: Expiry, item: Item) {
    let key = view.key(0);
    if expiry == Expiry::Past {
        if view.expire(0) {
            view.log(&[&[b"DEL", key]]);
        }
        return;
    }
    view.put_text_item(0, Tag::Text, value, expiry.at_ms(), item);
    view.changed(0, Class::STRING, "set");
    match expiry.at_ms() {
        None => log_with_notes(view, &[b"SET", key, value], item),
        Some(at_ms) => {
            view.changed(0, Class::GENERIC, "expire");
            let at = if view.env.logs { at_ms.to_string() } else { String::new() };
            log_with_notes(view, &[b"SET", key, value, b"PXAT", at.as_bytes()], item);
        }
    }
}

/// Logs a call that sets the key of a call, and what memcached's clients know of it.
pub fn log_with_notes(view: &mut View<'_, '_>, words: &[&[u8]], item: Item) {
    match item.notes() {
        notes if notes == 0 || !view.env.logs => view.log(&[words]),
        notes => {
            let key = view.key(0);
            view.log(&[words, &[b"SETRANGE", key, notes.to_string().as_bytes(), b""]]);
        }
    }
}

/// Puts a value behind or before the string that is there; not if that gets too long. Flags and
/// expiry stay, the string is stale no more.
fn extend(cx: &mut Cx<'_, '_, '_>, new: &New<'_>, item: Item) -> bool {
    let view = &mut *cx.view;
    let (key, value) = (view.key(0), new.value);
    let kept = Item::with_flags(item.flags);
    let mut found = view.find(0).expect("it is there");
    let len = text(&found).len();
    if item_size(key, len + value.len(), item.flags) > cx.item_size_max {
        return false;
    }
    if found.item().notes() != kept.notes() {
        found.set_item(kept);
    }
    let is_append = new.mode == Mode::Append;
    let mut whole = Vec::new();
    if is_append {
        edit(&mut found, len + value.len(), |bytes| bytes[len..].copy_from_slice(value));
    } else {
        whole = [value, &text(&found).bytes()].concat();
        replace(&mut found, whole.clone());
    }
    found.set_fetched(false);
    view.changed(0, Class::STRING, if is_append { "append" } else { "set" });
    match is_append {
        true if item.notes() == kept.notes() => view.log(&[&[b"APPEND", key, value]]),
        true => {
            let notes = kept.notes().to_string();
            let calls = [&[b"APPEND", key, value][..], &[b"SETRANGE", key, notes.as_bytes(), b""]];
            view.log(&calls);
        }
        false => log_with_notes(view, &[b"SET", key, &whole, b"KEEPTTL"], kept),
    }
    true
}
