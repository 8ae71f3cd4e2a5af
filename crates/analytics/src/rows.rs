//! Rows made of records: one for a key, or one for each element of it.

use kvasir_keyspace::hash_value::Hash;
use kvasir_keyspace::list_value::List;
use kvasir_keyspace::set_value::Set;
use kvasir_keyspace::sorted_set_value::{Direction, SortedSet};
use kvasir_keyspace::stream_value::Held;
use kvasir_keyspace::value::{Kind, Record, Tag, Text};
use kvasir_keyspace::view::Env;
use kvasir_structures::crc16;
use kvasir_structures::quicklist::End;
use kvasir_structures::stream::{Entry, StreamId};

use crate::column::{Cell, Column, TEXTS_BYTES_MAX};
use crate::ipc;
use crate::shape::{Named, Shape, Source};

/// A batch is about as large: small objects travel together, and a reader holds few of them.
pub const BATCH_BYTES: usize = 1 << 20;

/// What a value of a column can have at most: the texts of a batch together have 2 GiB.
const VALUE_BYTES_MAX: usize = TEXTS_BYTES_MAX - BATCH_BYTES;

/// Rows that are gathered for a batch.
pub struct Rows {
    columns: Vec<Column>,
    len: usize,
    misfits: u64,
}

/// A value that does not fit its column's type.
pub struct Misfit {
    pub text: String,
}

/// Where full rows go; it says whether more are wanted.
pub type Full<'f> = &'f mut dyn FnMut(Rows) -> bool;

/// What rows of a key have in common.
struct Head<'a> {
    key: &'a [u8],
    kind: Kind,
    ttl_ms: Cell<'a>,
}

/// What a row has of its own.
enum Own<'r> {
    Nothing,
    Value(&'r [u8]),
    Member { member: Cell<'r>, index: i64, score: f64 },
    Hash(Hash<'r>),
    Entry { id: &'r [u8], entry: Entry<'r> },
}

impl Rows {
    pub fn new(shape: &Shape) -> Rows {
        let columns = shape.columns.iter().map(|column| Column::new(column.data_type)).collect();
        Rows { columns, len: 0, misfits: 0 }
    }

    pub fn len(&self) -> usize {
        self.len
    }

    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Values that are null since they did not fit.
    pub fn misfits(&self) -> u64 {
        self.misfits
    }

    pub fn size_bytes(&self) -> usize {
        self.columns.iter().map(Column::size_bytes).sum()
    }

    pub fn to_message(&self) -> Vec<u8> {
        ipc::batch(&self.columns, self.len)
    }

    /// Adds the rows of a record.
    pub fn take(
        &mut self,
        record: Record<'_>,
        shape: &Shape,
        env: &Env,
        full: Full<'_>,
    ) -> Result<(), Misfit> {
        let ttl = |expiry_ms: u64| Cell::Int(expiry_ms.saturating_sub(env.now_ms) as i64);
        let kind = Tag::of(record).kind();
        let ttl_ms = record.expiry_ms().map_or(Cell::Null, ttl);
        let head = Head { key: record.key(), kind, ttl_ms };
        let mut way = Way { rows: self, shape, head: &head, full, result: Ok(true) };
        let sound = "the type was looked at";
        match shape.kind {
            None => way.row(&Own::Nothing),
            Some(Kind::String) => {
                way.row(&Own::Value(&Text::of(record).expect(sound).bytes()));
            }
            Some(Kind::Hash) => way.row(&Own::Hash(Hash::of(record, env).expect(sound))),
            Some(Kind::List) => {
                let (list, mut index) = (List::of(record).expect(sound), 0);
                list.visit_some(End::Head, 0, list.len(), |item| {
                    way.member(Cell::from(item), index, 0.0);
                    index += 1;
                });
            }
            Some(Kind::Set) => {
                let set = Set::of(record).expect(sound);
                set.for_each(|member| way.member(Cell::from(member), 0, 0.0));
            }
            Some(Kind::SortedSet) => {
                let set = SortedSet::of(record).expect(sound);
                set.for_each(0..set.len(), Direction::Ascending, |member, score| {
                    member.with_bytes(|member| way.member(Cell::Text(member), 0, score));
                });
            }
            Some(Kind::Stream) => {
                for entry in Held::of(record).expect(sound).range(StreamId::MIN, StreamId::MAX) {
                    let id = entry.id.to_string();
                    way.row(&Own::Entry { id: id.as_bytes(), entry });
                }
            }
        }
        let result = way.result.map(drop);
        if result.is_err() {
            // A row that has failed half-way is in some of the columns: nobody gets them.
            *self = Rows::new(shape);
        }
        result
    }

    fn add(&mut self, shape: &Shape, head: &Head<'_>, own: &Own<'_>) -> Result<(), Misfit> {
        for (column, named) in self.columns.iter_mut().zip(&shape.columns) {
            let fits = match &named.source {
                Source::Fields => own.push_fields(column),
                source => column.push(own.cell(source, head)),
            };
            if !fits && !shape.nulls_misfits {
                return Err(Misfit::new(column, named, head, own));
            }
            if !fits {
                column.push_null();
                self.misfits += 1;
            }
        }
        self.len += 1;
        Ok(())
    }
}

/// The rows of one record on their way.
struct Way<'a, 'f> {
    rows: &'a mut Rows,
    shape: &'a Shape,
    head: &'a Head<'a>,
    full: Full<'f>,
    /// Whether more are wanted.
    result: Result<bool, Misfit>,
}

impl Way<'_, '_> {
    fn member(&mut self, member: Cell<'_>, index: i64, score: f64) {
        self.row(&Own::Member { member, index, score });
    }

    fn row(&mut self, own: &Own<'_>) {
        if !matches!(self.result, Ok(true)) {
            return;
        }
        self.result = self.rows.add(self.shape, self.head, own).map(|()| true);
        if self.result.is_ok() && self.rows.size_bytes() >= BATCH_BYTES {
            let rows = std::mem::replace(self.rows, Rows::new(self.shape));
            self.result = Ok((self.full)(rows));
        }
    }
}

impl Own<'_> {
    fn cell<'s>(&'s self, source: &Source, head: &'s Head<'_>) -> Cell<'s> {
        match (source, self) {
            (Source::Key, _) => Cell::Text(head.key),
            (Source::Type, _) => Cell::Text(head.kind.name().as_bytes()),
            (Source::Ttl, _) => head.ttl_ms,
            (Source::Slot, _) => Cell::Int(crc16::slot_of(head.key).into()),
            (Source::Value, Own::Value(text)) => Cell::Text(text),
            (Source::Member, Own::Member { member, .. }) => *member,
            (Source::Index, Own::Member { index, .. }) => Cell::Int(*index),
            (Source::Score, Own::Member { score, .. }) => Cell::Float(*score),
            (Source::Id, Own::Entry { id, .. }) => Cell::Text(id),
            (Source::Field(name), Own::Hash(hash)) => hash.get(name).map_or(Cell::Null, Cell::from),
            (Source::Field(name), Own::Entry { entry, .. }) => {
                let mut fields = entry.fields();
                let found = fields.find(|(field, _)| field.is(name));
                found.map_or(Cell::Null, |(_, value)| Cell::from(value))
            }
            _ => Cell::Null,
        }
    }

    fn push_fields(&self, column: &mut Column) -> bool {
        match self {
            Own::Hash(hash) => {
                let mut pairs = Vec::with_capacity(hash.len());
                hash.for_each(|field, value| pairs.push((Cell::from(field), Cell::from(value))));
                column.push_map(pairs.into_iter())
            }
            Own::Entry { entry, .. } => {
                let pairs = entry.fields();
                column.push_map(pairs.map(|(field, value)| (Cell::from(field), Cell::from(value))))
            }
            _ => {
                column.push_null();
                true
            }
        }
    }
}

impl Misfit {
    fn new(column: &Column, named: &Named, head: &Head<'_>, own: &Own<'_>) -> Misfit {
        let show = |bytes: &[u8]| bytes[..bytes.len().min(64)].escape_ascii().to_string();
        let (key, name) = (show(head.key), show(&named.name));
        let data_type = column.data_type.name();
        let cell = own.cell(&named.source, head);
        let what = match (&named.source, cell) {
            (Source::Fields, _) => "a field or its value".to_owned(),
            // Whatever the type, there is no room for it.
            (_, Cell::Text(text)) if text.len() > VALUE_BYTES_MAX => {
                let text = format!(
                    "a value of {} bytes is more than the {VALUE_BYTES_MAX} that one of a column \
                     can have: column '{name}', at key '{key}': ask for ONMISFIT NULL",
                    text.len()
                );
                return Misfit { text };
            }
            _ => format!("'{}'", show(&cell.to_text())),
        };
        let text = format!(
            "{what} does not fit column '{name}' of type {data_type}, at key '{key}': declare \
             another type, or ask for ONMISFIT NULL"
        );
        Misfit { text }
    }
}
