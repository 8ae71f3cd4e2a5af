//! `incr`, `decr`, `touch`, `delete`.

use kvasir_keyspace::event::Class;
use kvasir_keyspace::item::{Age, Item};
use kvasir_keyspace::value::{Tag, Text};
use kvasir_keyspace::view::View;
use kvasir_resp::number::write_unsigned;
use kvasir_structures::record::NewBody;

use crate::expiry::{self, Expiry};
use crate::item::{Count, Cx, number, say};
use crate::store;

/// What may begin with a number is no longer: memcached keeps longer items in pieces, and takes
/// none of these for a number.
const NUMBER_MAX: usize = 512 * 1024;

pub const NOT_NUMBER: &str = "CLIENT_ERROR cannot increment or decrement non-numeric value";

/// What becomes of a number.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Changed {
    To(u64),
    Missing,
    NotNumber,
    /// Its id is another one.
    Exists,
}

/// `incr` and `decr`.
pub fn delta(cx: &mut Cx<'_, '_, '_>, is_increment: bool, delta: u64, is_quiet: bool) {
    match change(cx, is_increment, delta, None) {
        Changed::To(value) if !is_quiet => {
            number(cx.reply, value);
            cx.reply.raw(b"\r\n");
        }
        Changed::To(_) | Changed::Exists => {}
        Changed::Missing => say(cx.reply, "NOT_FOUND", is_quiet),
        Changed::NotNumber => say(cx.reply, NOT_NUMBER, is_quiet),
    }
}

/// Adds to the number that is there, or takes from it: up beyond 64 bits it begins at 0 again, down
/// it stops there. A number that gets shorter keeps its place: spaces fill it up.
pub fn change(cx: &mut Cx<'_, '_, '_>, is_increment: bool, delta: u64, id: Option<u64>) -> Changed {
    let changed = change_number(cx.view, is_increment, delta, id);
    let count = match (changed, is_increment) {
        (Changed::To(_), true) => Count::IncrementHits,
        (Changed::To(_), false) => Count::DecrementHits,
        (Changed::Missing, true) => Count::IncrementMisses,
        (Changed::Missing, false) => Count::DecrementMisses,
        (Changed::NotNumber | Changed::Exists, _) => return changed,
    };
    (cx.count)(count);
    changed
}

fn change_number(
    view: &mut View<'_, '_>,
    is_increment: bool,
    delta: u64,
    id: Option<u64>,
) -> Changed {
    let Some(found) = view.revisit(0) else { return Changed::Missing };
    let age = id.map(|id| found.age_of(id));
    let kept = Item::with_flags(found.item().flags);
    let was_fetched = found.is_fetched();
    let Ok(old) = Text::of(found.record()) else { return Changed::NotNumber };
    if old.is_empty() || old.len() > NUMBER_MAX {
        return Changed::NotNumber;
    }
    // An id of 0 compares with nothing.
    if id != Some(0) && age.is_some_and(|age| age != Age::Same) {
        return Changed::Exists;
    }
    let (len, old) = (old.len(), crate::number::unsigned(&old.bytes()));
    let Some(old) = old else { return Changed::NotNumber };
    let new = if is_increment { old.wrapping_add(delta) } else { old.saturating_sub(delta) };
    let mut text = Vec::with_capacity(len);
    write_unsigned(new, &mut text);
    let stays = text.len() <= len;
    text.resize(text.len().max(len), b' ');
    let mut found = view.find(0).expect("it was just there");
    found.set_body(Tag::Text, NewBody::Bytes(&text));
    found.set_fetched(stays && was_fetched);
    if !stays && found.item().notes() != kept.notes() {
        // A number that needs another place is another item.
        found.set_item(kept);
    }
    view.changed(0, Class::STRING, "incrby");
    let key = view.key(0);
    if stays {
        view.log(&[&[b"SETRANGE", key, b"0", &text]]);
    } else {
        store::log_with_notes(view, &[b"SET", key, &text, b"KEEPTTL"], kept);
    }
    Changed::To(new)
}

pub fn touch(cx: &mut Cx<'_, '_, '_>, exptime: i32, is_quiet: bool) {
    let Some(mut found) = cx.view.revisit(0) else {
        (cx.count)(Count::TouchMisses);
        return say(cx.reply, "NOT_FOUND", is_quiet);
    };
    found.note_fetch();
    (cx.count)(Count::TouchHits);
    expiry::touch(cx.view, Expiry::of(exptime, cx.now_ms()));
    say(cx.reply, "TOUCHED", is_quiet);
}

pub fn delete(cx: &mut Cx<'_, '_, '_>, is_quiet: bool) {
    let was_there = store::delete(cx.view);
    (cx.count)(if was_there { Count::DeleteHits } else { Count::DeleteMisses });
    say(cx.reply, if was_there { "DELETED" } else { "NOT_FOUND" }, is_quiet);
}
