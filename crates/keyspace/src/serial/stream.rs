//! Streams.
//!
//! | Part | Fields |
//! |---|---|
//! | nodes | how many; for each its master id, big endian, as a string, and its listpack |
//! | counts | live entries; last id; from type 19 on: first id, greatest deleted id, entries added |
//! | groups | how many; for each its name, last id, from type 19 on entries read, then: |
//! | pending | how many; for each its id, big endian, when it was delivered (8 bytes), how often |
//! | consumers | how many; for each its name, when it was seen (8 bytes), from type 21 on when it was active (8 bytes), how many entries are pending for it, their ids |
//!
//! An id among the counts is two numbers.

use kvasir_structures::stream::{Group, Restore, RestoredConsumer, Stream, StreamId};

use super::skip::skip_each;
use super::{Reader, SerialError, Value, Version, Writer};
use crate::stream_value::{self, Held};
use crate::value::Record;

/// What Redis 5, 7.0 and 7.2 write.
pub(super) const TYPES: [u8; 3] = [15, 19, 21];
/// From here on counts know what was deleted.
const WITH_DELETED: u8 = TYPES[1];
/// From here on consumers know when they were active.
const WITH_ACTIVE: u8 = TYPES[2];

/// A number that is not known; a moment that never was.
const UNKNOWN: u64 = u64::MAX;

const ID_SIZE: usize = 16;

pub(super) fn type_of(version: Version) -> u8 {
    if version >= Version::REDIS_7_2 { WITH_ACTIVE } else { WITH_DELETED }
}

pub(super) fn write(record: Record<'_>, writer: &mut Writer) {
    let stream = Held::of(record).expect("the caller looked");
    writer.count(stream.node_count());
    for node in stream.nodes() {
        writer.string(&node.master.to_be_bytes());
        writer.string(node.listpack.bytes());
    }
    writer.number(stream.len());
    write_id(stream.last_id(), writer);
    write_id(stream.first_id(), writer);
    write_id(stream.max_deleted_id(), writer);
    writer.number(stream.entries_added());
    writer.count(stream.groups().len());
    for (name, group) in stream.groups() {
        writer.string(name);
        write_group(group, writer);
    }
}

fn write_group(group: &Group, writer: &mut Writer) {
    write_id(group.last_id, writer);
    writer.number(group.entries_read.unwrap_or(UNKNOWN));
    writer.count(group.pending_len());
    for (id, pending) in group.pending_range(StreamId::MIN, StreamId::MAX) {
        writer.push(&id.to_be_bytes());
        writer.push(&pending.delivered_ms.to_le_bytes());
        writer.number(pending.deliveries);
    }
    writer.count(group.consumers().len());
    for consumer in group.consumers() {
        writer.string(consumer.name());
        writer.push(&consumer.seen_ms.to_le_bytes());
        if type_of(writer.version) == WITH_ACTIVE {
            writer.push(&consumer.active_ms.unwrap_or(UNKNOWN).to_le_bytes());
        }
        writer.count(consumer.pending_len());
        consumer.pending().for_each(|id| writer.push(&id.to_be_bytes()));
    }
}

fn write_id(id: StreamId, writer: &mut Writer) {
    writer.number(id.ms);
    writer.number(id.seq);
}

pub(super) fn read(type_byte: u8, reader: &mut Reader<'_>) -> Result<Value, SerialError> {
    let mut stream = read_entries(type_byte, reader)?;
    for _ in 0..reader.count(2)? {
        let name = reader.string()?;
        let group = read_group(type_byte, &stream, reader)?;
        if !stream.add_group(&name, group) {
            return Err(reader.error("a group that was there before"));
        }
    }
    Ok(stream_value::to_value(stream))
}

/// A stream without its groups.
fn read_entries(type_byte: u8, reader: &mut Reader<'_>) -> Result<Stream, SerialError> {
    let mut nodes = Restore::new();
    for _ in 0..reader.count(ID_SIZE + 2)? {
        let id = reader.string()?;
        let id = id.as_ref().try_into().map_err(|_| reader.error("an id of another size"))?;
        let listpack = reader.string()?.into_owned();
        let added = nodes.node(StreamId::from_be_bytes(id), listpack);
        added.map_err(|_| reader.error("broken node of a stream"))?;
    }
    let (len, last_id) = (reader.number()?, read_id(reader)?);
    let (mut max_deleted_id, mut entries_added) = (StreamId::MIN, len);
    if type_byte >= WITH_DELETED {
        // The first id follows from the entries.
        read_id(reader)?;
        (max_deleted_id, entries_added) = (read_id(reader)?, reader.number()?);
    }
    let stream = nodes.finish(len, last_id, max_deleted_id, entries_added);
    stream.map_err(|_| reader.error("a stream whose counts are wrong"))
}

fn read_group(
    type_byte: u8,
    stream: &Stream,
    reader: &mut Reader<'_>,
) -> Result<Group, SerialError> {
    let last_id = read_id(reader)?;
    let entries_read = match type_byte >= WITH_DELETED {
        true => Some(reader.number()?).filter(|read| *read != UNKNOWN),
        false => stream.number_of(last_id, stream.first_id()),
    };
    let mut pending = Vec::new();
    for _ in 0..reader.count(ID_SIZE + size_of::<i64>() + 1)? {
        let id = read_raw_id(reader)?;
        pending.push((id, read_time(reader)?, reader.number()?));
    }
    if !pending.is_sorted_by(|(one, ..), (next, ..)| one < next) {
        return Err(reader.error("pending entries that are out of order"));
    }
    let mut names = Vec::new();
    let mut consumers = Vec::new();
    for _ in 0..reader.count(size_of::<i64>() + 2)? {
        names.push(reader.string()?);
        consumers.push(read_consumer(type_byte, reader)?);
    }
    for (consumer, name) in consumers.iter_mut().zip(&names) {
        consumer.name = name;
    }
    let group = Restore::group(last_id, entries_read, &pending, &consumers);
    group.map_err(|_| reader.error("a group whose parts contradict each other"))
}

/// What follows the name of a consumer.
fn read_consumer<'n>(
    type_byte: u8,
    reader: &mut Reader<'_>,
) -> Result<RestoredConsumer<'n>, SerialError> {
    let seen_ms = read_time(reader)?;
    let active_ms = match type_byte >= WITH_ACTIVE {
        true => Some(u64::from_le_bytes(reader.array()?)).filter(|ms| *ms != UNKNOWN),
        // As Redis has it: better than never.
        false => Some(seen_ms),
    };
    let mut pending = Vec::new();
    for _ in 0..reader.count(ID_SIZE)? {
        pending.push(read_raw_id(reader)?);
    }
    Ok(RestoredConsumer { name: &[], seen_ms, active_ms, pending })
}

/// Goes past a stream, as `skip_value` says.
pub(super) fn skip(type_byte: u8, reader: &mut Reader<'_>) -> Result<(), SerialError> {
    skip_each(reader, |reader| {
        reader.skip_string()?;
        reader.skip_string()
    })?;
    reader.number()?;
    read_id(reader)?;
    if type_byte >= WITH_DELETED {
        read_id(reader)?;
        read_id(reader)?;
        reader.number()?;
    }
    skip_each(reader, |reader| skip_group(type_byte, reader))
}

fn skip_group(type_byte: u8, reader: &mut Reader<'_>) -> Result<(), SerialError> {
    reader.skip_string()?;
    read_id(reader)?;
    if type_byte >= WITH_DELETED {
        reader.number()?;
    }
    skip_each(reader, |reader| {
        reader.take(ID_SIZE + size_of::<i64>())?;
        reader.number().map(|_| ())
    })?;
    let time_count = if type_byte >= WITH_ACTIVE { 2 } else { 1 };
    skip_each(reader, |reader| {
        reader.skip_string()?;
        reader.take(time_count * size_of::<i64>())?;
        skip_each(reader, |reader| reader.take(ID_SIZE).map(|_| ()))
    })
}

fn read_id(reader: &mut Reader<'_>) -> Result<StreamId, SerialError> {
    Ok(StreamId::new(reader.number()?, reader.number()?))
}

fn read_raw_id(reader: &mut Reader<'_>) -> Result<StreamId, SerialError> {
    reader.array().map(StreamId::from_be_bytes)
}

fn read_time(reader: &mut Reader<'_>) -> Result<u64, SerialError> {
    let time_ms = reader.time_ms()?;
    u64::try_from(time_ms).map_err(|_| reader.error("a time before 1970"))
}
