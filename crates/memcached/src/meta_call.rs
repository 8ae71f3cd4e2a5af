//! The meta commands: `mg`, `ms`, `md`, `ma`, `me`.
//!
//! What is told of an item, and in which order, say the words of the flags. A stale item, or one
//! that was made because it was missing, is given to one client to make anew: that one gets `W`,
//! whoever comes behind it `Z`.

use kvasir_keyspace::event::Class;
use kvasir_keyspace::found::Found;
use kvasir_keyspace::item::{Age, Item};
use kvasir_resp::args::Args;
use kvasir_resp::reply::Reply;

use crate::base64;
use crate::change::{Changed, NOT_NUMBER, change};
use crate::expiry::{self, Expiry, seconds_left};
use crate::fetch::{text, write_text};
use crate::flags::Flags;
use crate::item::{Count, Cx, number, say};
use crate::request::Mode;
use crate::store::{self, New, Outcome, put, put_item};

/// `mg`: fetch, touch, make, or just look.
pub fn get(cx: &mut Cx<'_, '_, '_>, flags: &Flags, words: Args<'_>) {
    let mut is_hit = cx.view.fetch(0).is_some_and(|found| found.is_text());
    let mut is_new = false;
    if !is_hit && flags.vivify.is_some() {
        let item = Item { is_claimed: true, ..Item::default() };
        put_item(cx.view, b"", Expiry::Never, item);
        (is_new, is_hit) = (true, true);
    }
    let count = match (flags.ttl.is_some(), is_hit && !is_new) {
        (false, true) => Count::GetHits,
        (false, false) => Count::GetMisses,
        (true, true) => Count::TouchHits,
        (true, false) => Count::TouchMisses,
    };
    (cx.count)(count);
    if !is_hit {
        return miss(cx, "EN", flags, words, flags.is_quiet);
    }
    tell(cx, flags, words, is_new);
    expire(cx, flags, words, is_new);
}

/// Gives an item the time that the last of the flags says that mean it.
fn expire(cx: &mut Cx<'_, '_, '_>, flags: &Flags, words: Args<'_>, is_new: bool) {
    let times = words.iter().rev();
    if let Some(exptime) = times.filter_map(|word| time_of(flags, word, is_new)).next() {
        expiry::touch(cx.view, Expiry::of(exptime, cx.now_ms()));
    }
}

/// The time that a flag gives an item: `T` to any, `N` to one that was made by the call.
fn time_of(flags: &Flags, word: &[u8], is_new: bool) -> Option<i32> {
    match word[0] {
        b'T' => flags.ttl,
        b'N' if is_new => flags.vivify,
        _ => None,
    }
}

/// Writes what is asked of an item that is there.
fn tell(cx: &mut Cx<'_, '_, '_>, flags: &Flags, words: Args<'_>, is_new: bool) {
    let (now_ms, key) = (cx.now_ms(), cx.view.key(0));
    let reply = &mut *cx.reply;
    let mut found = cx.view.revisit(0).expect("it is there");
    let len = text(&found).len() as u64;
    if flags.wants_value {
        reply.raw(b"VA ");
        number(reply, len);
    } else {
        reply.raw(b"HD");
    }
    let (item, mut wins) = (found.item(), is_new);
    let mut expires_ms = found.record().expiry_ms();
    for word in words.iter() {
        match word[0] {
            b'T' | b'N' => {
                if let Some(exptime) = time_of(flags, word, is_new) {
                    expires_ms = Expiry::of(exptime, now_ms).at_ms();
                }
            }
            b'R' => {
                let left = expires_ms.map(|at_ms| seconds_left(at_ms, now_ms));
                let enough = flags.recache.and_then(|exptime| Expiry::of(exptime, now_ms).at_ms());
                let enough = enough.map(|at_ms| seconds_left(at_ms, now_ms));
                let is_old = left.zip(enough).is_some_and(|(left, enough)| left < enough);
                wins |= is_old && !item.is_claimed && !is_new;
            }
            b's' => field(reply, b's', len),
            b't' => time_left(reply, expires_ms, now_ms),
            b'c' => field(reply, b'c', found.identify()),
            b'f' => field(reply, b'f', u64::from(item.flags)),
            b'l' => field(reply, b'l', u64::from(found.idle_s())),
            b'h' => field(reply, b'h', u64::from(found.is_fetched())),
            _ => echo(reply, word, key, flags.is_base64),
        }
    }
    if item.is_claimed && !is_new {
        reply.raw(b" Z");
    }
    if item.is_stale {
        reply.raw(b" X");
        wins |= !item.is_claimed;
    }
    if wins {
        reply.raw(b" W");
        if !item.is_claimed {
            claim(&mut found);
        }
    }
    reply.raw(b"\r\n");
    if flags.wants_value {
        write_text(reply, text(&found));
        reply.raw(b"\r\n");
    }
    if !flags.leaves_no_trace {
        found.note_fetch();
    }
}

/// Notes that a client was told to make the value anew; its id stays what it is.
fn claim(found: &mut Found<'_>) {
    let item = found.item();
    found.set_item(Item { is_claimed: true, ..item });
}

/// `ms`
pub fn set(cx: &mut Cx<'_, '_, '_>, value: &[u8], flags: &Flags, mode: Mode, words: Args<'_>) {
    let expiry = Expiry::of(flags.ttl.unwrap_or(0), cx.now_ms());
    let new = New {
        value,
        mode,
        flags: flags.client_flags,
        expiry,
        id: flags.id,
        takes_older: flags.marks_stale,
    };
    let outcome = put(cx, &new);
    let (status, is_usual) = match outcome {
        Outcome::Stored => ("HD", true),
        Outcome::NotStored => ("NS", false),
        Outcome::Exists => ("EX", false),
        Outcome::NotFound => ("NF", false),
    };
    if is_usual && flags.is_quiet {
        return;
    }
    let key = cx.view.key(0);
    cx.reply.raw(status.as_bytes());
    for word in words.iter() {
        if word[0] == b'c' {
            let found = cx.view.revisit(0).filter(|_| is_usual);
            field(cx.reply, b'c', found.map_or(0, |mut found| found.identify()));
        } else {
            echo(cx.reply, word, key, flags.is_base64);
        }
    }
    cx.reply.raw(b"\r\n");
}

/// `md`: delete, or mark as stale.
pub fn delete(cx: &mut Cx<'_, '_, '_>, flags: &Flags, words: Args<'_>) {
    let age = cx.view.revisit(0).map(|found| flags.id.map_or(Age::Same, |id| found.age_of(id)));
    let (status, is_usual) = match age {
        None => ("NF", false),
        Some(Age::Same) => ("HD", true),
        Some(_) => ("EX", false),
    };
    if !is_usual {
        (cx.count)(Count::DeleteMisses);
    } else if flags.marks_stale {
        mark_stale(cx, flags);
    } else {
        (cx.count)(Count::DeleteHits);
        store::delete(cx.view);
    }
    miss(cx, status, flags, words, is_usual && flags.is_quiet);
}

/// The value stays, with the remark that it is old, perhaps for another time. Who knows its id
/// cannot set it anew by that.
fn mark_stale(cx: &mut Cx<'_, '_, '_>, flags: &Flags) {
    let view = &mut *cx.view;
    let mut found = view.find(0).expect("it is there");
    if found.is_text() {
        let item = Item { is_stale: true, is_claimed: false, ..found.item() };
        found.set_item(item);
        view.changed(0, Class::empty(), "");
        view.log(&[&[b"SETRANGE", view.key(0), item.notes().to_string().as_bytes(), b""]]);
    }
    if let Some(exptime) = flags.ttl {
        expiry::touch(view, Expiry::of(exptime, view.env.now_ms));
    }
}

/// `ma`
pub fn arithmetic(cx: &mut Cx<'_, '_, '_>, flags: &Flags, is_increment: bool, words: Args<'_>) {
    let changed = change(cx, is_increment, flags.delta.unwrap_or(1), flags.id);
    let (value, is_new) = match (changed, flags.vivify) {
        (Changed::To(value), _) => (value, false),
        (Changed::Missing, Some(_)) => {
            let text = flags.initial.to_string();
            put_item(cx.view, text.as_bytes(), Expiry::Never, Item::default());
            (flags.initial, true)
        }
        (Changed::Missing, None) => return miss(cx, "NF", flags, words, false),
        (Changed::Exists, _) => return miss(cx, "EX", flags, words, false),
        (Changed::NotNumber, _) => return say(cx.reply, NOT_NUMBER, false),
    };
    if !flags.is_quiet || is_new {
        tell_number(cx, flags, words, value, is_new);
    }
    expire(cx, flags, words, is_new);
}

fn tell_number(cx: &mut Cx<'_, '_, '_>, flags: &Flags, words: Args<'_>, value: u64, is_new: bool) {
    let (now_ms, key, digits) = (cx.now_ms(), cx.view.key(0), value.to_string());
    let reply = &mut *cx.reply;
    if flags.wants_value {
        reply.raw(b"VA ");
        number(reply, digits.len() as u64);
    } else {
        reply.raw(b"HD");
    }
    let found = cx.view.revisit(0);
    let mut expires_ms = found.as_ref().and_then(|found| found.record().expiry_ms());
    let id = found.filter(|_| words.iter().any(|word| word[0] == b'c'));
    let id = id.map_or(0, |mut found| found.identify());
    for word in words.iter() {
        match word[0] {
            b'c' => field(reply, b'c', id),
            b't' => time_left(reply, expires_ms, now_ms),
            b'T' | b'N' => {
                if let Some(exptime) = time_of(flags, word, is_new) {
                    expires_ms = Expiry::of(exptime, now_ms).at_ms();
                }
            }
            _ => echo(reply, word, key, flags.is_base64),
        }
    }
    reply.raw(b"\r\n");
    if flags.wants_value {
        reply.raw(digits.as_bytes());
        reply.raw(b"\r\n");
    }
}

/// `me`: what is known of an item, for people.
pub fn debug(cx: &mut Cx<'_, '_, '_>, is_base64: bool) {
    (cx.count)(Count::Meta);
    let (now_ms, key) = (cx.now_ms(), cx.view.key(0));
    let Some(mut found) = cx.view.revisit(0).filter(Found::is_text) else {
        return say(cx.reply, "EN", false);
    };
    let reply = &mut *cx.reply;
    reply.raw(b"ME ");
    write_key(reply, key, is_base64);
    // The time left stands there as a negative number.
    let left = found.record().expiry_ms().map(|at_ms| seconds_left(at_ms, now_ms) as i64);
    let line = format!(
        " exp={} la={} cas={} fetch={} cls=1 size={}\r\n",
        left.map_or(-1, |left| -left),
        found.idle_s(),
        found.identify(),
        if found.is_fetched() { "yes" } else { "no" },
        found.record().allocated_bytes(),
    );
    reply.raw(line.as_bytes());
}

/// A line of a status, and what is echoed behind it.
fn miss(cx: &mut Cx<'_, '_, '_>, status: &str, flags: &Flags, words: Args<'_>, is_left_out: bool) {
    if is_left_out {
        return;
    }
    cx.reply.raw(status.as_bytes());
    let key = cx.view.key(0);
    words.iter().for_each(|word| echo(cx.reply, word, key, flags.is_base64));
    cx.reply.raw(b"\r\n");
}

/// Key and opaque token come back to who asks for them.
fn echo(reply: &mut Reply, word: &[u8], key: &[u8], is_base64: bool) {
    match word[0] {
        b'O' => {
            reply.raw(b" ");
            reply.raw(word);
        }
        b'k' => {
            reply.raw(b" k");
            write_key(reply, key, is_base64);
            reply.raw(if is_base64 { b" b" } else { b"" });
        }
        _ => {}
    }
}

fn write_key(reply: &mut Reply, key: &[u8], is_base64: bool) {
    if is_base64 {
        reply.raw_appended(key.len() * 2 + 4, |bytes| base64::encode(key, bytes));
    } else {
        reply.raw(key);
    }
}

fn field(reply: &mut Reply, letter: u8, value: u64) {
    reply.raw(&[b' ', letter]);
    number(reply, value);
}

fn time_left(reply: &mut Reply, expires_ms: Option<u64>, now_ms: u64) {
    match expires_ms {
        None => reply.raw(b" t-1"),
        Some(at_ms) => field(reply, b't', seconds_left(at_ms, now_ms)),
    }
}
