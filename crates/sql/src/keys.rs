//! Which keys a query is about: the table's pattern, and what its filters say of `__key`.
//!
//! A filter is pushed down exactly, and not asked again, where EXPORT's words say just the same:
//! names (KEYS), and a prefix of a table whose pattern is a prefix (MATCH).

use std::collections::BTreeSet;
use std::fmt;

use datafusion::arrow::datatypes::DataType;
use datafusion::logical_expr::expr::{InList, Like};
use datafusion::logical_expr::{BinaryExpr, Expr, Operator};
use datafusion::scalar::ScalarValue;

use crate::definition::KEY;
use crate::glob;

/// A table's LOCATION: a glob, of which two forms are told apart.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Pattern {
    /// One key.
    Key(String),
    /// All that begin so.
    Prefix(String),
    /// Any other glob, as it is written.
    Glob(String),
}

impl Pattern {
    pub fn new(glob: &str) -> Pattern {
        let (mut plain, mut chars) = (String::new(), glob.chars());
        while let Some(c) = chars.next() {
            match c {
                '\\' => plain.extend(chars.next()),
                '*' if chars.as_str().is_empty() => return Pattern::Prefix(plain),
                '*' | '?' | '[' => return Pattern::Glob(glob.to_string()),
                c => plain.push(c),
            }
        }
        Pattern::Key(plain)
    }

    /// Whether a key is not of the table.
    pub fn excludes(&self, key: &[u8]) -> bool {
        match self {
            Pattern::Key(name) => key != name.as_bytes(),
            Pattern::Prefix(prefix) => !key.starts_with(prefix.as_bytes()),
            Pattern::Glob(glob) => !glob::matches(glob.as_bytes(), key),
        }
    }
}

impl fmt::Display for Pattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Pattern::Key(key) => f.write_str(&escape(key)),
            Pattern::Prefix(prefix) => write!(f, "{}*", escape(prefix)),
            Pattern::Glob(glob) => f.write_str(glob),
        }
    }
}

fn escape(text: &str) -> String {
    let mut escaped = String::new();
    for c in text.chars() {
        if matches!(c, '*' | '?' | '[' | ']' | '\\') {
            escaped.push('\\');
        }
        escaped.push(c);
    }
    escaped
}

/// What filters say of keys.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Keys {
    All,
    Prefix(String),
    These(BTreeSet<String>),
}

/// What a filter says of keys, and whether that is all it says.
pub struct Understood {
    pub keys: Keys,
    pub is_whole: bool,
}

impl Keys {
    fn has(&self, key: &str) -> bool {
        match self {
            Keys::All => true,
            Keys::Prefix(prefix) => key.starts_with(prefix),
            Keys::These(keys) => keys.contains(key),
        }
    }

    /// Keys that are of both.
    pub fn and(self, other: Keys) -> Keys {
        match (self, other) {
            (Keys::All, other) | (other, Keys::All) => other,
            (Keys::These(keys), other) | (other, Keys::These(keys)) => {
                Keys::These(keys.into_iter().filter(|key| other.has(key)).collect())
            }
            (Keys::Prefix(one), Keys::Prefix(other)) if one.starts_with(&other) => {
                Keys::Prefix(one)
            }
            (Keys::Prefix(one), Keys::Prefix(other)) if other.starts_with(&one) => {
                Keys::Prefix(other)
            }
            (Keys::Prefix(_), Keys::Prefix(_)) => Keys::These(BTreeSet::new()),
        }
    }

    /// What a filter says of keys, if it says something.
    pub fn of(filter: &Expr) -> Option<Understood> {
        let whole = |keys| Some(Understood { keys, is_whole: true });
        match filter {
            Expr::BinaryExpr(BinaryExpr { left, op: Operator::Eq, right }) => {
                let text = match (is_key(left), is_key(right)) {
                    (true, false) => text(right)?,
                    (false, true) => text(left)?,
                    _ => return None,
                };
                whole(Keys::These([text].into()))
            }
            // A short list comes as this.
            Expr::BinaryExpr(BinaryExpr { left, op: Operator::Or, right }) => {
                let (left, right) = (Keys::of(left)?, Keys::of(right)?);
                let (Keys::These(mut keys), Keys::These(more)) = (left.keys, right.keys) else {
                    return None;
                };
                keys.extend(more);
                whole(Keys::These(keys))
            }
            Expr::InList(InList { expr, list, negated: false }) if is_key(expr) => {
                whole(Keys::These(list.iter().map(text).collect::<Option<_>>()?))
            }
            Expr::Like(Like {
                negated: false,
                expr,
                pattern,
                escape_char: None | Some('\\'),
                case_insensitive: false,
            }) if is_key(expr) => Some(of_like(&text(pattern)?)),
            Expr::ScalarFunction(call) if call.name() == "starts_with" => match &call.args[..] {
                [key, prefix] if is_key(key) => whole(Keys::Prefix(text(prefix)?)),
                _ => None,
            },
            _ => None,
        }
    }
}

/// What EXPORT is told of keys.
#[derive(Clone, Debug)]
pub struct Selection {
    pub pattern: Pattern,
    pub keys: Option<BTreeSet<String>>,
}

impl Selection {
    /// Keys of a table for which filters hold; `None` if there can be none.
    pub fn new(pattern: &Pattern, keys: Keys) -> Option<Selection> {
        let (pattern, keys) = match (pattern.clone(), keys) {
            (pattern, Keys::These(keys)) => {
                let possible = keys.into_iter().filter(|key| !pattern.excludes(key.as_bytes()));
                let possible: BTreeSet<_> = possible.collect();
                (pattern, Some(possible))
            }
            (Pattern::Key(key), keys) => {
                let possible: BTreeSet<_> =
                    keys.has(&key).then(|| key.clone()).into_iter().collect();
                (Pattern::Key(key), Some(possible))
            }
            (Pattern::Prefix(table), Keys::Prefix(prefix)) => {
                match Keys::Prefix(table).and(Keys::Prefix(prefix)) {
                    Keys::Prefix(longer) => (Pattern::Prefix(longer), None),
                    _ => return None,
                }
            }
            (pattern, _) => (pattern, None),
        };
        let is_possible = keys.as_ref().is_none_or(|keys| !keys.is_empty());
        is_possible.then_some(Selection { pattern, keys })
    }
}

/// LIKE: as far as its first wildcard it is a prefix, without any a name.
fn of_like(pattern: &str) -> Understood {
    let (mut plain, mut chars) = (String::new(), pattern.chars());
    while let Some(c) = chars.next() {
        match c {
            '\\' => plain.extend(chars.next()),
            '%' | '_' => {
                let is_whole = c == '%' && chars.as_str().is_empty();
                return Understood { keys: Keys::Prefix(plain), is_whole };
            }
            c => plain.push(c),
        }
    }
    Understood { keys: Keys::These([plain].into()), is_whole: true }
}

fn is_key(expr: &Expr) -> bool {
    match expr {
        Expr::Column(column) => column.name == KEY,
        // One that is bytes, beside a text.
        Expr::Cast(cast) => *cast.field.data_type() == DataType::Utf8 && is_key(&cast.expr),
        _ => false,
    }
}

fn text(expr: &Expr) -> Option<String> {
    match expr {
        // What is compared to a key that is bytes.
        Expr::Literal(ScalarValue::Binary(Some(bytes)), _) => String::from_utf8(bytes.clone()).ok(),
        Expr::Literal(
            ScalarValue::Utf8(Some(text))
            | ScalarValue::Utf8View(Some(text))
            | ScalarValue::LargeUtf8(Some(text)),
            _,
        ) => Some(text.clone()),
        _ => None,
    }
}
