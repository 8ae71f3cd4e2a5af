//! Lists.

use kvasir_structures::quicklist::{End, NodeRef, Quicklist};
use kvasir_structures::record::Body;

use super::packed::{self, Packed};
use super::read::EMPTY;
use super::{Reader, SerialError, Value, Writer};
use crate::list_value;
use crate::value::{Object, Record, Tag};
use crate::view::Env;

/// Elements as strings.
pub(super) const ELEMENTS: u8 = 1;
pub(super) const ZIPLIST: u8 = 10;
pub(super) const ZIPLISTS: u8 = 14;
/// Nodes, each with a word for what it is.
pub(super) const NODES: u8 = 18;

/// A node that is one element.
const PLAIN: u64 = 1;
/// A node that is a listpack.
const PACKED: u64 = 2;

pub(super) fn write(record: Record<'_>, writer: &mut Writer) {
    match record.body() {
        Body::Bytes(listpack) => {
            writer.count(1);
            writer.number(PACKED);
            writer.string(listpack);
        }
        Body::Object(Object::List(list)) => {
            writer.count(list.part_count());
            list.for_each_node(|node| match node {
                NodeRef::Plain(element) => {
                    writer.number(PLAIN);
                    writer.string(element);
                }
                NodeRef::Packed(listpack) => {
                    writer.number(PACKED);
                    writer.string(listpack.bytes());
                }
            });
        }
        Body::Object(_) => unreachable!("a list's tag on another object"),
    }
}

pub(super) fn read_elements(reader: &mut Reader<'_>, env: &Env) -> Result<Value, SerialError> {
    let mut list = list_value::quicklist(env);
    for _ in 0..reader.count(1)? {
        list.push(End::Tail, &reader.string()?);
    }
    finish(list, 1, reader, env)
}

/// One ziplist.
pub(super) fn read_ziplist(reader: &mut Reader<'_>, env: &Env) -> Result<Value, SerialError> {
    let mut list = list_value::quicklist(env);
    append(&mut list, &packed::ziplist(reader)?);
    finish(list, 1, reader, env)
}

pub(super) fn read_ziplists(reader: &mut Reader<'_>, env: &Env) -> Result<Value, SerialError> {
    let (mut list, mut nodes) = (list_value::quicklist(env), 0);
    for _ in 0..reader.count(1)? {
        nodes += append(&mut list, &packed::ziplist(reader)?);
    }
    finish(list, nodes, reader, env)
}

pub(super) fn read_nodes(reader: &mut Reader<'_>, env: &Env) -> Result<Value, SerialError> {
    let (mut list, mut nodes) = (list_value::quicklist(env), 0);
    for _ in 0..reader.count(2)? {
        match reader.number()? {
            PLAIN => {
                list.push(End::Tail, &reader.string()?);
                nodes += 1;
            }
            PACKED => nodes += append(&mut list, &packed::listpack(reader)?),
            _ => return Err(reader.error("no such node of a list")),
        }
    }
    finish(list, nodes, reader, env)
}

/// Returns how many nodes that makes: an empty one is none.
fn append(list: &mut Quicklist, packed: &Packed) -> usize {
    for element in packed.listpack.view().iter() {
        list.push(End::Tail, &element.text());
    }
    usize::from(!packed.listpack.view().is_empty())
}

/// Nodes may be empty, as in Redis, but not all of them. What comes in several was a quicklist, and
/// stays one, though its elements are packed anew.
fn finish(
    list: Quicklist,
    nodes: usize,
    reader: &Reader<'_>,
    env: &Env,
) -> Result<Value, SerialError> {
    match nodes {
        _ if list.is_empty() => Err(reader.error(EMPTY)),
        1 => Ok(list_value::to_value(list, env)),
        _ => Ok(Value::object(Tag::ListQuicklist, Object::List(list))),
    }
}
