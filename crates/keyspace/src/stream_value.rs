//! The stream: entries in the order of their ids, kept in one of two ways.
//!
//! A tiny stream without consumer groups stands packed in the key's own record; it is unpacked for
//! every call. Past a kilobyte, or with its first group, it becomes an object of its own, for good.
//!
//! Commands read through [`read`] and [`peek`] and write through [`change`] and [`create`]; nothing
//! else knows the encodings. A stream without entries exists: it remembers its last id.

use std::ops::Deref;

use kvasir_structures::record::{Body, BodyMut, NewBody};
use kvasir_structures::stream::{Group, NodeLimits, Stream};

use crate::error::Error;
use crate::found::Found;
use crate::serial::Value;
use crate::value::{Kind, Object, Record, Tag};
use crate::view::{Env, Garbage, View};

/// A stream, for reading: where it stands, or unpacked.
pub enum Held<'a> {
    Tree(&'a Stream),
    Unpacked(Box<Stream>),
}

/// Reads a key's stream: counts a hit or a miss and notes the access.
pub fn read<'v>(view: &'v mut View<'_, '_>, key: usize) -> Result<Option<Held<'v>>, Error> {
    view.read(key).map(Held::of).transpose()
}

/// Looks at a key's stream without leaving a trace, as a command does that is about to change it.
pub fn peek<'v>(view: &'v mut View<'_, '_>, key: usize) -> Result<Option<Held<'v>>, Error> {
    view.peek(key).map(Held::of).transpose()
}

/// Lets `change` at a key's stream; `None` if the key is free.
pub fn change<R>(
    view: &mut View<'_, '_>,
    key: usize,
    change: impl FnOnce(&mut Stream) -> R,
) -> Result<Option<R>, Error> {
    let Some(mut found) = view.find(key) else { return Ok(None) };
    if Tag::of(found.record()).kind() != Kind::Stream {
        return Err(Error::WRONG_TYPE);
    }
    let mut stream = match found.occupied.record_mut().body_mut() {
        BodyMut::Object(Object::Stream(stream)) => return Ok(Some(change(stream))),
        BodyMut::Object(_) => unreachable!("a stream's tag on another object"),
        BodyMut::Bytes(packed) => Stream::from_packed(packed),
    };
    let result = change(&mut stream);
    store(&mut found, stream);
    Ok(Some(result))
}

/// Lets `change` at a group of a key's stream; `None` if there is no such key or group.
pub fn change_group<R>(
    view: &mut View<'_, '_>,
    key: usize,
    name: &[u8],
    change_it: impl FnOnce(&Stream, &mut Group) -> R,
) -> Result<Option<R>, Error> {
    change(view, key, |stream| stream.with_group(name, change_it)).map(Option::flatten)
}

/// Makes a key's stream; the key is free.
pub fn create(view: &mut View<'_, '_>, key: usize, stream: Stream) {
    match stream.to_packed() {
        Some(packed) => view.put(key, Tag::StreamPacked, NewBody::Bytes(&packed), None),
        None => {
            let object = NewBody::Object(Box::new(Object::Stream(stream)));
            view.put(key, Tag::StreamTree, object, None);
        }
    }
}

/// A whole stream as a value that has no key yet.
pub fn to_value(stream: Stream) -> Value {
    match stream.to_packed() {
        Some(packed) => Value::bytes(Tag::StreamPacked, packed),
        None => Value::object(Tag::StreamTree, Object::Stream(stream)),
    }
}

/// Frees what was taken out of a stream, in the background if that takes long.
pub fn discard(view: &mut View<'_, '_>, taken: Stream) {
    let object = Object::Stream(taken);
    if object.is_heavy() {
        view.tally.garbage.push(Garbage::Object(Box::new(object)));
    }
}

pub fn limits(env: &Env) -> NodeLimits {
    NodeLimits { bytes_max: env.stream_node_bytes_max, entries_max: env.stream_node_entries_max }
}

fn store(found: &mut Found<'_>, stream: Stream) {
    match stream.to_packed() {
        Some(packed) => found.set_body(Tag::StreamPacked, NewBody::Bytes(&packed)),
        None => {
            let object = NewBody::Object(Box::new(Object::Stream(stream)));
            found.set_body(Tag::StreamTree, object);
        }
    }
}

impl<'a> Held<'a> {
    /// The stream of a record, or WRONGTYPE.
    pub fn of(record: Record<'a>) -> Result<Held<'a>, Error> {
        if Tag::of(record).kind() != Kind::Stream {
            return Err(Error::WRONG_TYPE);
        }
        match record.body() {
            Body::Bytes(packed) => Ok(Held::Unpacked(Box::new(Stream::from_packed(packed)))),
            Body::Object(Object::Stream(stream)) => Ok(Held::Tree(stream)),
            Body::Object(_) => unreachable!("a stream's tag on another object"),
        }
    }
}

impl Deref for Held<'_> {
    type Target = Stream;

    fn deref(&self) -> &Stream {
        match self {
            Held::Tree(stream) => stream,
            Held::Unpacked(stream) => stream,
        }
    }
}

/// All that a log has to bring about, as text: what was seen when is not part of it.
#[cfg(test)]
pub fn describe(stream: &Stream) -> String {
    use std::fmt::Write;

    use kvasir_structures::stream::StreamId;

    let mut text = format!(
        "{} {} {} {}",
        stream.len(),
        stream.last_id(),
        stream.max_deleted_id(),
        stream.entries_added()
    );
    for node in stream.nodes() {
        write!(text, "; node {} {:?}", node.master, node.listpack).unwrap();
    }
    for (name, group) in stream.groups() {
        let name = name.escape_ascii();
        write!(text, "; group {name} {} {:?}", group.last_id, group.entries_read).unwrap();
        for consumer in group.consumers() {
            write!(text, "; consumer {}", consumer.name().escape_ascii()).unwrap();
        }
        for (id, pending) in group.pending_range(StreamId::MIN, StreamId::MAX) {
            let consumer = group.name_of(pending.consumer).escape_ascii();
            let (ms, count) = (pending.delivered_ms, pending.deliveries);
            write!(text, "; pending {id} {consumer} {ms} {count}").unwrap();
        }
    }
    text
}
