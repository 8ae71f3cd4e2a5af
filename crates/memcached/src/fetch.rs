//! `get`, `gets`, `gat`, `gats`: one key of them. A key that holds no string is a miss.

use kvasir_keyspace::found::Found;
use kvasir_keyspace::value::{SHARED_TEXT_MIN, Text};
use kvasir_resp::reply::Reply;
use std::sync::Arc;

use crate::expiry::{Expiry, touch};
use crate::item::{Count, Cx, number};

/// Writes a value if there is one.
pub fn get(cx: &mut Cx<'_, '_, '_>, with_id: bool) {
    let is_hit = write(cx, with_id);
    (cx.count)(if is_hit { Count::GetHits } else { Count::GetMisses });
}

/// The same, and the key lives for another time.
pub fn get_and_touch(cx: &mut Cx<'_, '_, '_>, with_id: bool, exptime: i32) {
    let is_hit = write(cx, with_id);
    (cx.count)(if is_hit { Count::TouchHits } else { Count::TouchMisses });
    if is_hit {
        touch(cx.view, Expiry::of(exptime, cx.now_ms()));
    }
}

fn write(cx: &mut Cx<'_, '_, '_>, with_id: bool) -> bool {
    let key = cx.view.key(0);
    let Some(mut found) = cx.view.fetch(0).filter(Found::is_text) else { return false };
    let id = with_id.then(|| found.identify());
    let reply = &mut *cx.reply;
    reply.raw(b"VALUE ");
    reply.raw(key);
    reply.raw(b" ");
    number(reply, u64::from(found.item().flags));
    reply.raw(b" ");
    let text = text(&found);
    number(reply, text.len() as u64);
    if let Some(id) = id {
        reply.raw(b" ");
        number(reply, id);
    }
    reply.raw(b"\r\n");
    write_text(reply, text);
    reply.raw(b"\r\n");
    found.note_fetch();
    true
}

/// The value of a key that holds a string.
pub fn text<'a>(found: &'a Found<'_>) -> Text<'a> {
    Text::of(found.record()).expect("its type was looked at")
}

/// Writes a value, without a copy if it is long.
pub fn write_text(reply: &mut Reply, text: Text<'_>) {
    match text {
        Text::Shared(text) if text.len() >= SHARED_TEXT_MIN => reply.raw_shared(Arc::clone(text)),
        Text::Compressed(text) => {
            reply.raw_appended(text.text_len(), |bytes| text.append_to(bytes))
        }
        text => reply.raw(&text.bytes()),
    }
}
