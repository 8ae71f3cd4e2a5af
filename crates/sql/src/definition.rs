//! What a table is: which keys, of which type, and its columns.
//!
//! Columns are those of EXPORT: `__key` first, then fields or what the type has, and last `__type`,
//! `__ttl` and `__slot`, which nobody needs to declare.

use std::collections::HashMap;
use std::sync::Arc;

use datafusion::arrow::datatypes::{DataType, Field, Schema, SchemaRef, TimeUnit};
use datafusion::common::plan_datafusion_err;
use datafusion::error::Result;

use crate::keys::Pattern;

pub const KEY: &str = "__key";
pub const TYPE: &str = "__type";
pub const TTL: &str = "__ttl";
pub const SLOT: &str = "__slot";
pub const VALUE: &str = "__value";
pub const MEMBER: &str = "__member";
pub const INDEX: &str = "__index";
pub const SCORE: &str = "__score";
pub const ID: &str = "__id";
/// All fields as a map, which no table has.
const FIELDS: &str = "__fields";

/// The type of a key's value.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash, PartialOrd, Ord)]
pub enum Kind {
    String,
    Hash,
    List,
    Set,
    SortedSet,
    Stream,
}

impl Kind {
    const ALL: [Kind; 6] =
        [Kind::String, Kind::Hash, Kind::List, Kind::Set, Kind::SortedSet, Kind::Stream];

    /// As TYPE says it.
    pub fn name(self) -> &'static str {
        match self {
            Kind::String => "string",
            Kind::Hash => "hash",
            Kind::List => "list",
            Kind::Set => "set",
            Kind::SortedSet => "zset",
            Kind::Stream => "stream",
        }
    }

    pub fn from_name(name: &str) -> Option<Kind> {
        Kind::ALL.into_iter().find(|kind| kind.name() == name)
    }

    /// Its columns that are no fields.
    pub fn own_columns(self) -> Vec<Field> {
        let text = |name: &str| Field::new(name, DataType::Utf8, true);
        match self {
            Kind::String => vec![text(VALUE)],
            Kind::Hash => vec![],
            Kind::List => vec![Field::new(INDEX, DataType::Int64, true), text(MEMBER)],
            Kind::Set => vec![text(MEMBER)],
            Kind::SortedSet => vec![text(MEMBER), Field::new(SCORE, DataType::Float64, true)],
            Kind::Stream => vec![text(ID)],
        }
    }

    /// That which has these columns, if they tell.
    fn of_columns(columns: &[Field]) -> Option<Kind> {
        let has = |name: &str| columns.iter().any(|column| column.name() == name);
        match () {
            () if has(VALUE) => Some(Kind::String),
            () if has(SCORE) => Some(Kind::SortedSet),
            () if has(INDEX) => Some(Kind::List),
            () if has(ID) => Some(Kind::Stream),
            () if has(MEMBER) => None,
            () => Some(Kind::Hash),
        }
    }
}

/// A table.
#[derive(Clone, Debug)]
pub struct Definition {
    pub pattern: Pattern,
    /// `None`: keys of any type.
    pub kind: Option<Kind>,
    pub schema: SchemaRef,
    /// What does not fit its column's type is null; otherwise a query fails.
    pub nulls_misfits: bool,
}

/// What CREATE EXTERNAL TABLE says of a table beside its columns.
#[derive(Default)]
pub struct Said {
    pub kind: Option<Kind>,
    pub nulls_misfits: Option<bool>,
    /// Its rows are those of the moment at which it was created.
    pub is_persisted: bool,
}

impl Said {
    /// From the words of OPTIONS.
    pub fn of(options: &HashMap<String, String>) -> Result<Said> {
        let mut said = Said::default();
        for (name, value) in options {
            // The planner takes every option without a namespace for one of a file's format.
            match (name.trim_start_matches("format."), value.to_lowercase().as_str()) {
                ("type", kind) => {
                    let known = Kind::from_name(kind);
                    said.kind = Some(known.ok_or_else(|| {
                        plan_datafusion_err!("there is no type '{kind}': one of string, hash, list, set, zset, stream")
                    })?);
                }
                ("persist", "true") => said.is_persisted = true,
                ("persist", "false") => said.is_persisted = false,
                ("persist", _) => return Err(plan_datafusion_err!("persist is true or false")),
                ("misfits", "null") => said.nulls_misfits = Some(true),
                ("misfits", "fail") => said.nulls_misfits = Some(false),
                ("misfits", _) => {
                    return Err(plan_datafusion_err!("misfits is 'null' or 'fail'"));
                }
                (name, _) => {
                    return Err(plan_datafusion_err!(
                        "a table of KVASIR has no option '{name}', but type, misfits and persist"
                    ));
                }
            }
        }
        Ok(said)
    }
}

impl Definition {
    /// From declared columns; `None` if they do not tell the type of the keys.
    pub fn declared(
        pattern: Pattern,
        kind: Option<Kind>,
        columns: &Schema,
        nulls_misfits: bool,
    ) -> Result<Option<Definition>> {
        let columns = columns.fields().iter().map(|field| {
            let data_type = column_type(field.data_type()).ok_or_else(|| {
                plan_datafusion_err!(
                    "column '{}' cannot be {}: a column of KVASIR is text, bytea, bigint, double, \
                     decimal, boolean, date or timestamp",
                    field.name(),
                    field.data_type()
                )
            })?;
            Ok(Field::new(field.name(), data_type, true))
        });
        let columns = columns.collect::<Result<Vec<_>>>()?;
        let Some(kind) = kind.or_else(|| Kind::of_columns(&columns)) else { return Ok(None) };
        Ok(Some(Definition::new(pattern, Some(kind), columns, nulls_misfits)))
    }

    pub fn new(
        pattern: Pattern,
        kind: Option<Kind>,
        columns: Vec<Field>,
        nulls_misfits: bool,
    ) -> Definition {
        // A key that is no text is one of bytes, if it is declared so.
        let is_binary =
            |column: &Field| column.name() == KEY && *column.data_type() == DataType::Binary;
        let key = if columns.iter().any(is_binary) { DataType::Binary } else { DataType::Utf8 };
        let mut fields = vec![Field::new(KEY, key, true)];
        fields.extend(columns.into_iter().filter(|column| !is_metadata(column.name())));
        fields.push(Field::new(TYPE, DataType::Utf8, true));
        fields.push(Field::new(TTL, DataType::Int64, true));
        fields.push(Field::new(SLOT, DataType::Int64, true));
        Definition { pattern, kind, schema: Arc::new(Schema::new(fields)), nulls_misfits }
    }

    /// The columns that INSERT means if it names none: the key and what was declared.
    pub fn written_columns(&self) -> impl Iterator<Item = &str> {
        let names = self.schema.fields().iter().map(|field| field.name().as_str());
        names.filter(|name| *name == KEY || !is_metadata(name))
    }

    /// As it is shown to who sees it guessed.
    pub fn describe(&self) -> String {
        let columns = self.schema.fields().iter().map(|field| {
            let name = field.name();
            let is_plain =
                name.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_');
            let quote = if is_plain { "" } else { "\"" };
            format!("{quote}{name}{quote} {}", sql_name(field.data_type()))
        });
        let columns: Vec<_> = columns.collect();
        let kind = self.kind.map_or("keys of any type", Kind::name);
        format!("{} is {kind}: {}", self.pattern, columns.join(", "))
    }
}

fn is_metadata(name: &str) -> bool {
    [KEY, TYPE, TTL, SLOT].contains(&name)
}

/// Whether EXPORT means something else by this name than a field.
pub fn is_taken(name: &str, kind: Kind) -> bool {
    is_metadata(name) || name == FIELDS || (name == ID && kind == Kind::Stream)
}

/// Milliseconds, as EXPORT has them.
pub fn timestamp() -> DataType {
    DataType::Timestamp(TimeUnit::Millisecond, Some("UTC".into()))
}

/// What a column is that was declared as, or computed as, this.
pub fn column_type(declared: &DataType) -> Option<DataType> {
    Some(match declared {
        DataType::Utf8 | DataType::LargeUtf8 | DataType::Utf8View => DataType::Utf8,
        DataType::Binary | DataType::LargeBinary | DataType::BinaryView => DataType::Binary,
        declared if declared.is_integer() => DataType::Int64,
        DataType::Float16 | DataType::Float32 | DataType::Float64 => DataType::Float64,
        DataType::Boolean => DataType::Boolean,
        DataType::Timestamp(..) => timestamp(),
        DataType::Date32 | DataType::Date64 => DataType::Date32,
        DataType::Decimal32(precision, scale)
        | DataType::Decimal64(precision, scale)
        | DataType::Decimal128(precision, scale) => DataType::Decimal128(*precision, *scale),
        _ => return None,
    })
}

/// As EXPORT calls it; what it has no word for comes as text.
pub fn export_name(data_type: &DataType) -> &'static str {
    match data_type {
        DataType::Binary => "binary",
        DataType::Int64 => "int64",
        DataType::Float64 => "float64",
        DataType::Boolean => "bool",
        DataType::Timestamp(..) => "timestamp",
        _ => "utf8",
    }
}

pub fn sql_name(data_type: &DataType) -> String {
    let name = match data_type {
        DataType::Decimal128(precision, scale) => return format!("decimal({precision}, {scale})"),
        DataType::Date32 => "date",
        DataType::Binary => "bytea",
        DataType::Int64 => "bigint",
        DataType::Float64 => "double",
        DataType::Boolean => "boolean",
        DataType::Timestamp(..) => "timestamp",
        _ => "text",
    };
    name.to_string()
}
