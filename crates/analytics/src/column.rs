//! A column that is being filled, in Arrow's layout, and the values that fit into it.
//!
//! | Type | Buffers behind the validity bits |
//! |---|---|
//! | utf8, binary | ends of the values (32 bits, one more than values), bytes |
//! | int64, float64, timestamp | 64 bits a value |
//! | bool | a bit a value |
//! | map | ends of the maps; then of keys and of values what texts have |
//!
//! The layout: <https://arrow.apache.org/docs/format/Columnar.html>.

use std::str::from_utf8;

use kvasir_keyspace::hash_value::Item;
use kvasir_resp::number::{parse_c_double, parse_integer, write_double_shortest, write_integer};
use kvasir_structures::listpack::Element;

use crate::time::parse_timestamp_ms;

/// What a column holds.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum DataType {
    Utf8,
    Binary,
    Int64,
    Float64,
    Bool,
    /// Milliseconds since 1970, UTC.
    Timestamp,
    /// From fields to values, both as text, or both as bytes.
    Map {
        is_binary: bool,
    },
}

impl DataType {
    /// The type of this name, in any case.
    pub fn from_name(name: &[u8]) -> Option<DataType> {
        const ALL: [DataType; 6] = [
            DataType::Utf8,
            DataType::Binary,
            DataType::Int64,
            DataType::Float64,
            DataType::Bool,
            DataType::Timestamp,
        ];
        ALL.into_iter().find(|data_type| name.eq_ignore_ascii_case(data_type.name().as_bytes()))
    }

    pub fn name(self) -> &'static str {
        match self {
            DataType::Utf8 => "utf8",
            DataType::Binary => "binary",
            DataType::Int64 => "int64",
            DataType::Float64 => "float64",
            DataType::Bool => "bool",
            DataType::Timestamp => "timestamp",
            DataType::Map { .. } => "map",
        }
    }
}

/// A value as it comes, before it is brought into a column's type.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum Cell<'a> {
    Null,
    Int(i64),
    Float(f64),
    Text(&'a [u8]),
}

impl<'a> From<Item<'a>> for Cell<'a> {
    fn from(item: Item<'a>) -> Cell<'a> {
        match item {
            Item::Int(int) => Cell::Int(int),
            Item::Bytes(bytes) => Cell::Text(bytes),
            Item::Shared(text) => Cell::Text(text),
        }
    }
}

impl<'a> From<Element<'a>> for Cell<'a> {
    fn from(element: Element<'a>) -> Cell<'a> {
        match element {
            Element::Int(int) => Cell::Int(int),
            Element::Bytes(bytes) => Cell::Text(bytes),
        }
    }
}

impl Cell<'_> {
    /// As clients would see it.
    pub fn to_text(self) -> Vec<u8> {
        let mut text = Vec::new();
        match self {
            Cell::Null => {}
            Cell::Int(int) => write_integer(int, &mut text),
            Cell::Float(float) => write_double_shortest(float, &mut text),
            Cell::Text(bytes) => text.extend_from_slice(bytes),
        }
        text
    }

    fn to_int(self) -> Option<i64> {
        match self {
            Cell::Int(int) => Some(int),
            Cell::Float(float) if float.fract() == 0.0 && float.abs() < 2f64.powi(53) => {
                Some(float as i64)
            }
            Cell::Text(text) => parse_integer(text),
            _ => None,
        }
    }

    fn to_float(self) -> Option<f64> {
        match self {
            Cell::Int(int) => Some(int as f64),
            Cell::Float(float) => Some(float),
            Cell::Text(text) => parse_c_double(text).or_else(|| parse_nan(text)),
            Cell::Null => None,
        }
    }

    fn to_bool(self) -> Option<bool> {
        match self.to_text().to_ascii_lowercase().as_slice() {
            b"1" | b"true" | b"yes" => Some(true),
            b"0" | b"false" | b"no" => Some(false),
            _ => None,
        }
    }
}

/// What is no number is a value of a column as infinity is, though no command counts with it.
fn parse_nan(text: &[u8]) -> Option<f64> {
    let (b"nan" | b"+nan" | b"-nan") = text.to_ascii_lowercase().as_slice() else { return None };
    Some(f64::NAN)
}

/// A bit a value.
#[derive(Default)]
pub struct Bits {
    pub bytes: Vec<u8>,
    len: usize,
    ones: usize,
}

impl Bits {
    fn push(&mut self, bit: bool) {
        if self.len.is_multiple_of(8) {
            self.bytes.push(0);
        }
        if let Some(last) = self.bytes.last_mut() {
            *last |= u8::from(bit) << (self.len % 8);
        }
        self.len += 1;
        self.ones += usize::from(bit);
    }

    pub fn zeros(&self) -> usize {
        self.len - self.ones
    }
}

/// An end has 31 bits.
pub const TEXTS_BYTES_MAX: usize = i32::MAX as usize;

/// Texts one behind the other.
pub struct Texts {
    /// Where each begins; and the end of the last.
    pub ends: Vec<i32>,
    pub bytes: Vec<u8>,
}

impl Texts {
    fn new() -> Texts {
        Texts { ends: vec![0], bytes: Vec::new() }
    }

    pub fn count(&self) -> usize {
        self.ends.len() - 1
    }

    /// Fails past two GiB, which an end cannot tell any more.
    fn end(&mut self) -> Option<()> {
        self.ends.push(i32::try_from(self.bytes.len()).ok()?);
        Some(())
    }

    fn push(&mut self, cell: Cell<'_>, is_binary: bool) -> Option<()> {
        if let Cell::Text(text) = cell
            && text.len() > TEXTS_BYTES_MAX.saturating_sub(self.bytes.len())
        {
            return None;
        }
        match cell {
            Cell::Text(text) if is_binary || from_utf8(text).is_ok() => {
                self.bytes.extend_from_slice(text);
            }
            Cell::Text(_) => return None,
            Cell::Int(int) => write_integer(int, &mut self.bytes),
            Cell::Float(float) => write_double_shortest(float, &mut self.bytes),
            Cell::Null => {}
        }
        self.end()
    }
}

/// The values of a column.
pub enum Data {
    Texts(Texts),
    Words(Vec<u64>),
    Bits(Bits),
    Map { ends: Vec<i32>, keys: Texts, values: Texts },
}

/// A column that is being filled.
pub struct Column {
    pub data_type: DataType,
    pub validity: Bits,
    pub data: Data,
}

impl Column {
    pub fn new(data_type: DataType) -> Column {
        let data = match data_type {
            DataType::Utf8 | DataType::Binary => Data::Texts(Texts::new()),
            DataType::Int64 | DataType::Float64 | DataType::Timestamp => Data::Words(Vec::new()),
            DataType::Bool => Data::Bits(Bits::default()),
            DataType::Map { .. } => {
                Data::Map { ends: vec![0], keys: Texts::new(), values: Texts::new() }
            }
        };
        Column { data_type, validity: Bits::default(), data }
    }

    /// Bytes so far.
    pub fn size_bytes(&self) -> usize {
        let texts = |texts: &Texts| 4 * texts.ends.len() + texts.bytes.len();
        self.validity.bytes.len()
            + match &self.data {
                Data::Texts(all) => texts(all),
                Data::Words(words) => 8 * words.len(),
                Data::Bits(bits) => bits.bytes.len(),
                Data::Map { ends, keys, values } => 4 * ends.len() + texts(keys) + texts(values),
            }
    }

    /// Adds a value; false, with nothing added, if it does not fit the type.
    pub fn push(&mut self, cell: Cell<'_>) -> bool {
        if cell == Cell::Null {
            self.push_null();
            return true;
        }
        let is_binary = self.data_type == DataType::Binary;
        let pushed = match (&mut self.data, self.data_type) {
            (Data::Texts(texts), _) => texts.push(cell, is_binary),
            (Data::Bits(bits), _) => cell.to_bool().map(|bit| bits.push(bit)),
            (Data::Words(words), DataType::Int64) => {
                cell.to_int().map(|int| words.push(int as u64))
            }
            (Data::Words(words), DataType::Float64) => {
                cell.to_float().map(|float| words.push(float.to_bits()))
            }
            (Data::Words(words), _) => {
                let parse = |text| parse_integer(text).or_else(|| parse_timestamp_ms(text));
                let ms = match cell {
                    Cell::Text(text) => parse(text),
                    other => other.to_int(),
                };
                ms.map(|ms| words.push(ms as u64))
            }
            (Data::Map { .. }, _) => None,
        };
        if pushed.is_some() {
            self.validity.push(true);
        }
        pushed.is_some()
    }

    pub fn push_null(&mut self) {
        self.validity.push(false);
        match &mut self.data {
            Data::Texts(texts) => texts.ends.push(texts.ends[texts.count()]),
            Data::Words(words) => words.push(0),
            Data::Bits(bits) => bits.push(false),
            Data::Map { ends, .. } => ends.push(ends[ends.len() - 1]),
        }
    }

    /// Adds a map; false, with nothing added, if a part of it does not fit.
    pub fn push_map<'c>(&mut self, pairs: impl Iterator<Item = (Cell<'c>, Cell<'c>)>) -> bool {
        let is_binary = self.data_type == DataType::Map { is_binary: true };
        let Data::Map { ends, keys, values } = &mut self.data else { return false };
        let (count, bytes) = (keys.count(), (keys.bytes.len(), values.bytes.len()));
        for (key, value) in pairs {
            let fits = keys.push(key, is_binary).and_then(|()| values.push(value, is_binary));
            if fits.is_none() {
                keys.ends.truncate(count + 1);
                values.ends.truncate(count + 1);
                keys.bytes.truncate(bytes.0);
                values.bytes.truncate(bytes.1);
                return false;
            }
        }
        // There are no more of them than bytes of their ends.
        ends.push(keys.count() as i32);
        self.validity.push(true);
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Which of these texts fit a type, and how the words then look.
    fn words(data_type: DataType, texts: &[&str]) -> (Vec<bool>, Vec<u64>) {
        let mut column = Column::new(data_type);
        let fits = texts.iter().map(|text| column.push(Cell::Text(text.as_bytes()))).collect();
        let Data::Words(words) = column.data else { return (fits, Vec::new()) };
        (fits, words)
    }

    #[test]
    fn what_fits_a_type_is_taken_and_nothing_else() {
        let ints = words(DataType::Int64, &["-1", "1.0", "", "9223372036854775808", "7"]);
        assert_eq!(ints, (vec![true, false, false, false, true], vec![u64::MAX, 7]));
        let floats = words(DataType::Float64, &["1", "-1e3", "inf", "x", "NaN", "-nan", "nano"]);
        assert_eq!(floats.0, [true, true, true, false, true, true, false]);
        assert_eq!(floats.1[1], (-1000f64).to_bits());
        assert!(f64::from_bits(floats.1[3]).is_nan());
        let times = words(DataType::Timestamp, &["1000", "1970-01-01T00:00:02Z", "yesterday"]);
        assert_eq!(times, (vec![true, true, false], vec![1000, 2000]));
        let bools = words(DataType::Bool, &["1", "NO", "true", "2", "maybe"]);
        assert_eq!(bools.0, [true, true, true, false, false]);
        let mut texts = Column::new(DataType::Utf8);
        assert!(!texts.push(Cell::Text(b"\xff")) && texts.push(Cell::Int(5)));
        assert!(Column::new(DataType::Binary).push(Cell::Text(b"\xff")));
    }

    #[test]
    fn a_map_that_does_not_fit_leaves_nothing() {
        let mut column = Column::new(DataType::Map { is_binary: false });
        let text = |text: &'static [u8]| Cell::Text(text);
        assert!(column.push_map([(text(b"a"), text(b"1"))].into_iter()));
        assert!(
            !column.push_map([(text(b"b"), text(b"2")), (text(b"c"), text(b"\xff"))].into_iter())
        );
        column.push_null();
        assert!(column.push_map([].into_iter()));
        let Data::Map { ends, keys, values } = column.data else { panic!("a map") };
        assert_eq!((ends, keys.bytes, values.bytes), (vec![0, 1, 1, 1], b"a".into(), b"1".into()));
        assert_eq!(column.validity.bytes, [0b101]);
    }
}
