//! A reply as a value, the way a client sees it, printed in redis-cli's style.

use std::fmt::{self, Write};

use crate::number::write_double;

/// One reply of RESP2 or RESP3.
#[derive(Clone, PartialEq)]
pub enum Value {
    Simple(Vec<u8>),
    /// `-` or, in RESP3, also `!`.
    Error(Vec<u8>),
    Integer(i64),
    Bulk(Vec<u8>),
    /// `_` or `$-1`.
    Null,
    /// `*-1`, which only RESP2 has.
    NullArray,
    Boolean(bool),
    Double(f64),
    /// Decimal digits, perhaps with a sign.
    BigNumber(Vec<u8>),
    Verbatim {
        format: [u8; 3],
        text: Vec<u8>,
    },
    Array(Vec<Value>),
    Map(Vec<(Value, Value)>),
    Set(Vec<Value>),
    /// A message that answers no request.
    Push(Vec<Value>),
    /// A reply, and what was said about it before it.
    Annotated {
        attributes: Vec<(Value, Value)>,
        value: Box<Value>,
    },
}

impl Value {
    /// The bytes of a string of any kind.
    pub fn as_bytes(&self) -> Option<&[u8]> {
        match self {
            Value::Simple(bytes) | Value::Bulk(bytes) | Value::BigNumber(bytes) => Some(bytes),
            Value::Verbatim { text, .. } => Some(text),
            Value::Annotated { value, .. } => value.as_bytes(),
            _ => None,
        }
    }

    pub fn as_integer(&self) -> Option<i64> {
        match self {
            Value::Integer(value) => Some(*value),
            Value::Annotated { value, .. } => value.as_integer(),
            _ => None,
        }
    }

    /// The elements of an array, a set or a push message.
    pub fn as_array(&self) -> Option<&[Value]> {
        match self {
            Value::Array(items) | Value::Set(items) | Value::Push(items) => Some(items),
            Value::Annotated { value, .. } => value.as_array(),
            _ => None,
        }
    }

    pub fn is_error(&self) -> bool {
        matches!(self, Value::Error(_))
    }
}

impl fmt::Display for Value {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.print(f, "")
    }
}

/// The same text: what a failed assertion shows should be readable.
impl fmt::Debug for Value {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.print(f, "")
    }
}

impl Value {
    /// `indent` stands before each line but the first.
    fn print(&self, f: &mut fmt::Formatter<'_>, indent: &str) -> fmt::Result {
        match self {
            Value::Simple(text) => print_text(f, text),
            Value::Error(text) => {
                f.write_str("(error) ")?;
                print_text(f, text)
            }
            Value::Integer(value) => write!(f, "(integer) {value}"),
            Value::Bulk(bytes) => print_quoted(f, bytes),
            Value::Null | Value::NullArray => f.write_str("(nil)"),
            Value::Boolean(value) => write!(f, "({value})"),
            Value::Double(value) => {
                let mut text = vec![];
                write_double(*value, &mut text);
                write!(f, "(double) {}", String::from_utf8_lossy(&text))
            }
            Value::BigNumber(digits) => {
                f.write_str("(big number) ")?;
                print_text(f, digits)
            }
            Value::Verbatim { text, .. } => print_text(f, text),
            Value::Array(items) => print_items(f, indent, items, ')', "(empty array)"),
            Value::Set(items) => print_items(f, indent, items, '~', "(empty set)"),
            Value::Push(items) => print_items(f, indent, items, ')', "(empty push)"),
            Value::Map(pairs) => print_pairs(f, indent, pairs, '#', "(empty hash)"),
            Value::Annotated { attributes, value } => {
                print_pairs(f, indent, attributes, '|', "(empty attribute)")?;
                write!(f, "\n{indent}")?;
                value.print(f, indent)
            }
        }
    }
}

fn print_text(f: &mut fmt::Formatter<'_>, text: &[u8]) -> fmt::Result {
    f.write_str(&String::from_utf8_lossy(text))
}

/// As redis-cli quotes, so that the text can be typed in again.
fn print_quoted(f: &mut fmt::Formatter<'_>, bytes: &[u8]) -> fmt::Result {
    f.write_char('"')?;
    for byte in bytes {
        match byte {
            b'"' | b'\\' => write!(f, "\\{}", char::from(*byte))?,
            b'\n' => f.write_str("\\n")?,
            b'\r' => f.write_str("\\r")?,
            b'\t' => f.write_str("\\t")?,
            0x07 => f.write_str("\\a")?,
            0x08 => f.write_str("\\b")?,
            b' '..=b'~' => f.write_char(char::from(*byte))?,
            _ => write!(f, "\\x{byte:02x}")?,
        }
    }
    f.write_char('"')
}

fn print_items(
    f: &mut fmt::Formatter<'_>,
    indent: &str,
    items: &[Value],
    mark: char,
    empty: &str,
) -> fmt::Result {
    if items.is_empty() {
        return f.write_str(empty);
    }
    let width = digits_len(items.len());
    let inner = format!("{indent}{:1$}", "", width + 2);
    for (index, item) in items.iter().enumerate() {
        print_number(f, indent, index, width, mark)?;
        item.print(f, &inner)?;
    }
    Ok(())
}

fn print_pairs(
    f: &mut fmt::Formatter<'_>,
    indent: &str,
    pairs: &[(Value, Value)],
    mark: char,
    empty: &str,
) -> fmt::Result {
    if pairs.is_empty() {
        return f.write_str(empty);
    }
    let width = digits_len(pairs.len());
    let inner = format!("{indent}{:1$}", "", width + 2);
    for (index, (key, value)) in pairs.iter().enumerate() {
        print_number(f, indent, index, width, mark)?;
        key.print(f, &inner)?;
        f.write_str(" => ")?;
        value.print(f, &inner)?;
    }
    Ok(())
}

/// `12) `, on a new line if it is not the first.
fn print_number(
    f: &mut fmt::Formatter<'_>,
    indent: &str,
    index: usize,
    width: usize,
    mark: char,
) -> fmt::Result {
    if index > 0 {
        write!(f, "\n{indent}")?;
    }
    write!(f, "{:1$}{mark} ", index + 1, width)
}

fn digits_len(count: usize) -> usize {
    crate::number::unsigned_len(count as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bulk(text: &str) -> Value {
        Value::Bulk(text.into())
    }

    #[test]
    fn values_print_as_in_redis_cli() {
        let list = Value::Array(vec![Value::Integer(7), Value::Null, bulk("a\"\\\n\x07\x01")]);
        let cases = [
            (Value::Simple(b"OK".into()), "OK"),
            (Value::Error(b"ERR no".into()), "(error) ERR no"),
            (Value::Double(1.5), "(double) 1.5"),
            (Value::Boolean(true), "(true)"),
            (Value::Array(vec![]), "(empty array)"),
            (Value::Map(vec![]), "(empty hash)"),
            (list.clone(), "1) (integer) 7\n2) (nil)\n3) \"a\\\"\\\\\\n\\a\\x01\""),
            (
                Value::Array(vec![list.clone(), list]),
                "1) 1) (integer) 7\n   2) (nil)\n   3) \"a\\\"\\\\\\n\\a\\x01\"\n\
                 2) 1) (integer) 7\n   2) (nil)\n   3) \"a\\\"\\\\\\n\\a\\x01\"",
            ),
            (
                Value::Map(vec![(bulk("a"), Value::Integer(1)), (bulk("b"), Value::Set(vec![]))]),
                "1# \"a\" => (integer) 1\n2# \"b\" => (empty set)",
            ),
        ];
        for (value, text) in cases {
            assert_eq!(value.to_string(), text);
        }
    }

    #[test]
    fn numbers_of_elements_are_aligned() {
        let text = Value::Array(vec![Value::Integer(0); 10]).to_string();
        assert!(text.starts_with(" 1) (integer) 0\n 2) ") && text.ends_with("\n10) (integer) 0"));
    }
}
