//! What the columns of an export are: names, where their values come from, types.
//!
//! | Column | Of | Unless declared |
//! |---|---|---|
//! | `__key`, `__type` | every key | utf8 |
//! | `__ttl` milliseconds, `__slot` | every key | int64 |
//! | `__value` | a string | utf8 |
//! | `__member`; `__index` | an element of a list, a member of a set or sorted set | utf8; int64 |
//! | `__score` | a member of a sorted set | float64 |
//! | `__id` | an entry of a stream | utf8 |
//! | `__fields` | a hash, an entry of a stream: all fields | map of utf8 |
//! | any other, or one of those above that the type has not | a hash, an entry of a stream: the field of that name | utf8 |

use kvasir_keyspace::value::Kind;

use crate::column::DataType;

/// More columns than anybody needs, and few enough that a batch of one row is small.
pub const COLUMNS_MAX: usize = 4096;

/// What the rows of an export are.
pub struct Shape {
    /// `None`: a row for each key, of any type.
    pub kind: Option<Kind>,
    pub columns: Vec<Named>,
    /// What does not fit its column's type is null; otherwise the export fails.
    pub nulls_misfits: bool,
}

/// A column.
pub struct Named {
    pub name: Vec<u8>,
    pub source: Source,
    pub data_type: DataType,
}

/// Where a column's values come from.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Source {
    Key,
    Type,
    Ttl,
    Slot,
    Value,
    Member,
    Index,
    Score,
    Id,
    Fields,
    Field(Vec<u8>),
}

impl Source {
    /// A name that keys of this type have no column for is that of a field, if they have fields.
    fn of(name: &[u8], kind: Option<Kind>) -> Source {
        let source = Source::named(name);
        match kind {
            Some(Kind::Hash | Kind::Stream) if !source.is_of(kind) => Source::Field(name.to_vec()),
            _ => source,
        }
    }

    fn named(name: &[u8]) -> Source {
        match name {
            b"__key" => Source::Key,
            b"__type" => Source::Type,
            b"__ttl" => Source::Ttl,
            b"__slot" => Source::Slot,
            b"__value" => Source::Value,
            b"__member" => Source::Member,
            b"__index" => Source::Index,
            b"__score" => Source::Score,
            b"__id" => Source::Id,
            b"__fields" => Source::Fields,
            name => Source::Field(name.to_vec()),
        }
    }

    fn default_type(&self) -> DataType {
        match self {
            Source::Ttl | Source::Slot | Source::Index => DataType::Int64,
            Source::Score => DataType::Float64,
            Source::Fields => DataType::Map { is_binary: false },
            _ => DataType::Utf8,
        }
    }

    /// Whether the rows of keys of this type have it.
    fn is_of(&self, kind: Option<Kind>) -> bool {
        match self {
            Source::Key | Source::Type | Source::Ttl | Source::Slot => true,
            Source::Value => kind == Some(Kind::String),
            Source::Member => matches!(kind, Some(Kind::List | Kind::Set | Kind::SortedSet)),
            Source::Index => kind == Some(Kind::List),
            Source::Score => kind == Some(Kind::SortedSet),
            Source::Id => kind == Some(Kind::Stream),
            Source::Fields | Source::Field(_) => matches!(kind, Some(Kind::Hash | Kind::Stream)),
        }
    }
}

impl Named {
    /// The column of this name, in its own type or a declared one; fails with a text.
    pub fn new(
        name: &[u8],
        declared: Option<DataType>,
        kind: Option<Kind>,
    ) -> Result<Named, String> {
        let source = Source::of(name, kind);
        let shown = String::from_utf8_lossy(name);
        if !source.is_of(kind) {
            let of = kind.map_or("keys of any type", Kind::name);
            return Err(format!("there is no column '{shown}' for {of}: name a TYPE that has it"));
        }
        let data_type = match (&source, declared) {
            (_, None) => source.default_type(),
            (Source::Fields, Some(DataType::Utf8)) => DataType::Map { is_binary: false },
            (Source::Fields, Some(DataType::Binary)) => DataType::Map { is_binary: true },
            (Source::Fields, Some(_)) => {
                return Err(format!("'{shown}' is a map of utf8 or of binary"));
            }
            (_, Some(declared)) => declared,
        };
        Ok(Named { name: name.to_vec(), source, data_type })
    }

    /// The columns that are meant where none is named.
    pub fn usual(kind: Option<Kind>) -> Vec<Named> {
        let names: &[&str] = match kind {
            None => &["__key", "__type", "__ttl", "__slot"],
            Some(Kind::String) => &["__key", "__value"],
            Some(Kind::Hash) => &["__key", "__fields"],
            Some(Kind::List) => &["__key", "__index", "__member"],
            Some(Kind::Set) => &["__key", "__member"],
            Some(Kind::SortedSet) => &["__key", "__member", "__score"],
            Some(Kind::Stream) => &["__key", "__id", "__fields"],
        };
        let named = names.iter().map(|name| Named::new(name.as_bytes(), None, kind));
        named.map(|column| column.expect("it has these")).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_field_may_be_called_as_a_column_of_another_type() {
        let source = |name: &str, kind| {
            let column = Named::new(name.as_bytes(), None, Some(kind));
            column.map(|column| (column.source, column.data_type))
        };
        let field = |name: &str| Ok((Source::Field(name.into()), DataType::Utf8));
        for name in ["__value", "__member", "__index", "__score", "__id"] {
            assert_eq!(source(name, Kind::Hash), field(name));
        }
        assert_eq!(source("__score", Kind::Stream), field("__score"));
        assert_eq!(source("__id", Kind::Stream), Ok((Source::Id, DataType::Utf8)));
        assert_eq!(source("__slot", Kind::Hash), Ok((Source::Slot, DataType::Int64)));
        assert!(source("__member", Kind::String).is_err());
    }
}
