//! Arrow's stream format: a message with the schema, messages with rows, an end.
//!
//! | Bytes of a message | |
//! |---|---|
//! | 4 | 0xffffffff |
//! | 4 | size of the metadata with what fills it up to a multiple of 8, little-endian |
//! | | metadata: a flatbuffer `Message` of Arrow's Message.fbs and Schema.fbs |
//! | | body: the buffers of all columns, each at a multiple of 8 |
//!
//! The crates of Arrow would do the same; they and what they need take 214 s of processor time to
//! build, about as long as all the rest of the server.
//! The format: <https://arrow.apache.org/docs/format/Columnar.html#ipc-streaming-format>.

use crate::column::{Column, Data, DataType, Texts};
use crate::flat::{Flat, Slot};

/// What a stream ends with.
pub const END: [u8; 8] = [0xff, 0xff, 0xff, 0xff, 0, 0, 0, 0];

/// The numbers of Message.fbs and Schema.fbs.
const VERSION_5: i16 = 4;
const SCHEMA: u8 = 1;
const RECORD_BATCH: u8 = 3;
const INT: u8 = 2;
const FLOATING_POINT: u8 = 3;
const BINARY: u8 = 4;
const UTF8: u8 = 5;
const BOOL: u8 = 6;
const TIMESTAMP: u8 = 10;
const STRUCT: u8 = 13;
const MAP: u8 = 17;
const DOUBLE: i16 = 2;
const MILLISECOND: i16 = 1;

/// The message that a stream begins with: names and types of the columns.
pub fn schema<'a>(fields: impl ExactSizeIterator<Item = (&'a [u8], DataType)>) -> Vec<u8> {
    message(SCHEMA, Vec::new(), |flat| {
        let schema = flat.table(&[Slot::Absent, Slot::Reference]);
        let (vector, places) = flat.references(fields.len());
        flat.refer(schema.references[0], vector);
        for (place, (name, data_type)) in places.into_iter().zip(fields) {
            let field = field(flat, &String::from_utf8_lossy(name), data_type, true);
            flat.refer(place, field);
        }
        schema.start
    })
}

/// The message that carries rows.
pub fn batch(columns: &[Column], rows: usize) -> Vec<u8> {
    let mut body = Body::default();
    columns.iter().for_each(|column| body.column(column, rows));
    let Body { bytes, buffers, nodes } = body;
    message(RECORD_BATCH, bytes, |flat| {
        let batch = flat.table(&[Slot::Long(rows as i64), Slot::Reference, Slot::Reference]);
        let nodes = flat.pairs(&nodes);
        flat.refer(batch.references[0], nodes);
        let buffers = flat.pairs(&buffers);
        flat.refer(batch.references[1], buffers);
        batch.start
    })
}

fn message(kind: u8, body: Vec<u8>, header: impl FnOnce(&mut Flat) -> usize) -> Vec<u8> {
    let mut flat = Flat::new();
    let body_len = Slot::Long(body.len() as i64);
    let root = flat.table(&[Slot::Short(VERSION_5), Slot::Byte(kind), Slot::Reference, body_len]);
    flat.refer(0, root.start);
    let header = header(&mut flat);
    flat.refer(root.references[0], header);
    let metadata = flat.into_bytes();
    let padded = metadata.len().next_multiple_of(8);
    let mut bytes = Vec::with_capacity(8 + padded + body.len());
    bytes.extend_from_slice(&[0xff; 4]);
    bytes.extend_from_slice(&(padded as u32).to_le_bytes());
    bytes.extend_from_slice(&metadata);
    bytes.resize(8 + padded, 0);
    bytes.extend_from_slice(&body);
    bytes
}

fn field(flat: &mut Flat, name: &str, data_type: DataType, is_nullable: bool) -> usize {
    let kind = match data_type {
        DataType::Utf8 => UTF8,
        DataType::Binary => BINARY,
        DataType::Int64 => INT,
        DataType::Float64 => FLOATING_POINT,
        DataType::Bool => BOOL,
        DataType::Timestamp => TIMESTAMP,
        DataType::Map { .. } => MAP,
    };
    field_of(flat, name, kind, is_nullable, |flat| match data_type {
        DataType::Map { is_binary } => {
            let text = if is_binary { DataType::Binary } else { DataType::Utf8 };
            let (vector, places) = flat.references(1);
            let entries = field_of(flat, "entries", STRUCT, false, |flat| {
                let (vector, places) = flat.references(2);
                for (place, (name, is_nullable)) in
                    places.into_iter().zip([("key", false), ("value", true)])
                {
                    let part = field(flat, name, text, is_nullable);
                    flat.refer(place, part);
                }
                vector
            });
            flat.refer(places[0], entries);
            vector
        }
        _ => flat.references(0).0,
    })
}

fn field_of(
    flat: &mut Flat,
    name: &str,
    kind: u8,
    is_nullable: bool,
    children: impl FnOnce(&mut Flat) -> usize,
) -> usize {
    let nullable = Slot::Byte(u8::from(is_nullable));
    let table = flat.table(&[
        Slot::Reference,
        nullable,
        Slot::Byte(kind),
        Slot::Reference,
        Slot::Absent,
        Slot::Reference,
    ]);
    let name = flat.string(name);
    flat.refer(table.references[0], name);
    let parameters = match kind {
        INT => flat.table(&[Slot::Int(64), Slot::Byte(1)]),
        FLOATING_POINT => flat.table(&[Slot::Short(DOUBLE)]),
        TIMESTAMP => {
            let parameters = flat.table(&[Slot::Short(MILLISECOND), Slot::Reference]);
            let zone = flat.string("UTC");
            flat.refer(parameters.references[0], zone);
            parameters
        }
        _ => flat.table(&[]),
    };
    flat.refer(table.references[1], parameters.start);
    let children = children(flat);
    flat.refer(table.references[2], children);
    table.start
}

/// The buffers of a batch as they are gathered, and what the metadata says of them.
#[derive(Default)]
struct Body {
    bytes: Vec<u8>,
    /// Offset and length of each.
    buffers: Vec<(i64, i64)>,
    /// Length and number of nulls of each column and of each part of one.
    nodes: Vec<(i64, i64)>,
}

impl Body {
    fn column(&mut self, column: &Column, rows: usize) {
        let nulls = column.validity.zeros();
        self.nodes.push((rows as i64, nulls as i64));
        // Without nulls the bits may be left out.
        self.buffer(if nulls > 0 { &column.validity.bytes } else { &[] });
        match &column.data {
            Data::Texts(texts) => self.texts(texts),
            Data::Words(words) => self.words(words.iter().map(|word| word.to_le_bytes())),
            Data::Bits(bits) => self.buffer(&bits.bytes),
            Data::Map { ends, keys, values } => {
                self.words(ends.iter().map(|end| end.to_le_bytes()));
                self.nodes.push((keys.count() as i64, 0));
                self.buffer(&[]);
                for texts in [keys, values] {
                    self.nodes.push((texts.count() as i64, 0));
                    self.buffer(&[]);
                    self.texts(texts);
                }
            }
        }
    }

    fn texts(&mut self, texts: &Texts) {
        self.words(texts.ends.iter().map(|end| end.to_le_bytes()));
        self.buffer(&texts.bytes);
    }

    fn buffer(&mut self, bytes: &[u8]) {
        let start = self.bytes.len();
        self.bytes.extend_from_slice(bytes);
        self.end_buffer(start);
    }

    fn words<const N: usize>(&mut self, words: impl Iterator<Item = [u8; N]>) {
        let start = self.bytes.len();
        words.for_each(|word| self.bytes.extend_from_slice(&word));
        self.end_buffer(start);
    }

    fn end_buffer(&mut self, start: usize) {
        self.buffers.push((start as i64, (self.bytes.len() - start) as i64));
        self.bytes.resize(self.bytes.len().next_multiple_of(8), 0);
    }
}
