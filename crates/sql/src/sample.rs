//! Guesses a table from some of its keys: their type, their fields, what these hold.

use std::collections::BTreeMap;

use datafusion::arrow::datatypes::{DataType, Field};
use datafusion::common::plan_datafusion_err;
use datafusion::error::Result;
use redis::{Connection, FromRedisValue};

use crate::definition::{Definition, KEY, Kind, VALUE, is_taken, timestamp};
use crate::keys::Pattern;
use crate::node::refused;
use crate::table::Place;

/// Keys that one call of SCAN looks at.
const SCAN_COUNT: usize = 1000;
/// Elements that are looked at of each key.
const ELEMENTS: usize = 64;
/// Bytes of a string that are looked at.
const BYTES: usize = 256;
/// A guess with more columns than that is no help.
const COLUMNS_MAX: usize = 512;

type Pairs = Vec<(Vec<u8>, Vec<u8>)>;

/// The table of a pattern, guessed from up to so many keys; `None` if no key matches.
pub fn guess(
    place: &Place,
    pattern: &Pattern,
    wanted: Option<Kind>,
    keys_max: usize,
    nulls_misfits: bool,
) -> Result<Option<Definition>> {
    let mut found: BTreeMap<Kind, usize> = BTreeMap::new();
    let (mut fields, mut seen, mut has_binary_key) = (Fields::default(), 0, false);
    for part in place.parts()? {
        let mut connection = part.node.connect()?;
        let mut cursor = 0;
        while seen < keys_max {
            let (next, keys) = some_keys(&mut connection, pattern, cursor)?;
            for key in keys.into_iter().take(keys_max - seen) {
                has_binary_key |= std::str::from_utf8(&key).is_err();
                let name: String = ask(&mut connection, &["TYPE".as_bytes(), &key])?;
                // A key may have gone since it was listed.
                let Some(kind) = Kind::from_name(&name) else { continue };
                if wanted.is_none_or(|wanted| wanted == kind) {
                    *found.entry(kind).or_default() += 1;
                    fields.look(&mut connection, kind, &key)?;
                    seen += 1;
                }
            }
            cursor = next;
            if cursor == 0 {
                break;
            }
        }
    }
    let kind = match found.keys().collect::<Vec<_>>()[..] {
        [] => return Ok(None),
        [kind] => Some(*kind),
        _ => None,
    };
    let mut columns = kind.map_or(Ok(Vec::new()), |kind| fields.columns(pattern, kind))?;
    if has_binary_key {
        columns.push(Field::new(KEY, DataType::Binary, true));
    }
    Ok(Some(Definition::new(pattern.clone(), kind, columns, nulls_misfits)))
}

fn some_keys(
    connection: &mut Connection,
    pattern: &Pattern,
    cursor: u64,
) -> Result<(u64, Vec<Vec<u8>>)> {
    if let Pattern::Key(key) = pattern {
        return Ok((0, vec![key.clone().into_bytes()]));
    }
    let mut call = redis::cmd("SCAN");
    call.arg(cursor).arg("MATCH").arg(pattern.to_string()).arg("COUNT").arg(SCAN_COUNT);
    call.query(connection).map_err(refused)
}

fn ask<T: FromRedisValue>(connection: &mut Connection, words: &[&[u8]]) -> Result<T> {
    let mut call = redis::Cmd::new();
    for word in words {
        call.arg(*word);
    }
    call.query(connection).map_err(refused)
}

/// The fields that were seen, in the order in which they were, and what they held.
#[derive(Default)]
struct Fields(Vec<(Vec<u8>, Guess)>);

impl Fields {
    fn look(&mut self, connection: &mut Connection, kind: Kind, key: &[u8]) -> Result<()> {
        let elements = ELEMENTS.to_string();
        let elements = elements.as_bytes();
        match kind {
            Kind::String => {
                let last = (BYTES - 1).to_string();
                let value: Vec<u8> = ask(connection, &[b"GETRANGE", key, b"0", last.as_bytes()])?;
                // The cut may have gone through a character.
                let is_cut = value.len() == BYTES;
                self.see(VALUE.as_bytes(), if is_cut { b"text" } else { &value });
            }
            Kind::Hash => {
                let (_, pairs): (u64, Pairs) =
                    ask(connection, &[b"HSCAN", key, b"0", b"COUNT", elements])?;
                pairs.iter().for_each(|(field, value)| self.see(field, value));
            }
            Kind::Stream => {
                let entries: Vec<(String, Pairs)> =
                    ask(connection, &[b"XRANGE", key, b"-", b"+", b"COUNT", elements])?;
                let pairs = entries.iter().flat_map(|(_, pairs)| pairs);
                pairs.for_each(|(field, value)| self.see(field, value));
            }
            Kind::List | Kind::Set | Kind::SortedSet => {}
        }
        Ok(())
    }

    fn see(&mut self, field: &[u8], value: &[u8]) {
        let at = self.0.iter().position(|(name, _)| name == field).unwrap_or_else(|| {
            self.0.push((field.to_vec(), Guess::default()));
            self.0.len() - 1
        });
        self.0[at].1.see(value);
    }

    fn columns(self, pattern: &Pattern, kind: Kind) -> Result<Vec<Field>> {
        if self.0.len() > COLUMNS_MAX {
            return Err(plan_datafusion_err!(
                "{pattern} has more than {COLUMNS_MAX} fields: say which in CREATE EXTERNAL TABLE"
            ));
        }
        let mut columns = kind.own_columns();
        for (name, guess) in self.0 {
            // A name that is no text is no name of a column, nor is one that means something else.
            let Ok(name) = String::from_utf8(name) else { continue };
            if is_taken(&name, kind) {
                continue;
            }
            let data_type = guess.data_type();
            match columns.iter_mut().find(|column| *column.name() == name) {
                Some(column) => column.set_data_type(data_type),
                None => columns.push(Field::new(name, data_type, true)),
            }
        }
        Ok(columns)
    }
}

/// What all values of a field are that were seen.
struct Guess {
    is_int: bool,
    is_float: bool,
    has_number: bool,
    is_bool: bool,
    is_timestamp: bool,
    is_text: bool,
}

impl Default for Guess {
    fn default() -> Guess {
        Guess {
            is_int: true,
            is_float: true,
            has_number: false,
            is_bool: true,
            is_timestamp: true,
            is_text: true,
        }
    }
}

impl Guess {
    fn see(&mut self, value: &[u8]) {
        let text = std::str::from_utf8(value);
        self.is_text &= text.is_ok();
        let text = text.unwrap_or_default();
        // 007 is a name, and 1e5 a number, but no integer.
        self.is_int &= text.parse::<i64>().is_ok_and(|int| int.to_string() == text);
        let is_number = text.starts_with(|c: char| c.is_ascii_digit() || c == '-')
            && (!text.starts_with('0') || text == "0" || text.starts_with("0."));
        let is_number = is_number && text.parse::<f64>().is_ok();
        // These stand beside numbers; alone they may be words.
        self.is_float &= is_number || matches!(text, "NaN" | "nan" | "inf" | "-inf");
        self.has_number |= is_number;
        self.is_bool &= matches!(text, "true" | "false");
        self.is_timestamp &= is_timestamp(text.as_bytes());
    }

    fn data_type(&self) -> DataType {
        match self {
            Guess { is_int: true, .. } => DataType::Int64,
            Guess { is_float: true, has_number: true, .. } => DataType::Float64,
            Guess { is_bool: true, .. } => DataType::Boolean,
            Guess { is_timestamp: true, .. } => timestamp(),
            Guess { is_text: true, .. } => DataType::Utf8,
            _ => DataType::Binary,
        }
    }
}

/// Whether it looks as RFC 3339 has it: 2026-07-28T12:00:00Z.
fn is_timestamp(text: &[u8]) -> bool {
    let form = b"dddd-dd-ddTdd:dd:dd";
    let fits = form.iter().zip(text).all(|(form, byte)| match form {
        b'd' => byte.is_ascii_digit(),
        form => form == byte,
    });
    fits && text.len() > form.len() && matches!(text[form.len()], b'Z' | b'.' | b'+' | b'-')
}
