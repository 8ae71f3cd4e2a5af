//! Replies as trees that keep every byte: two replies are equal only if their bytes are.
//!
//! `kvasir_resp::decode` gives values, for which `$-1` and `_` are one null and a double is a
//! number; who compares servers must see the difference.

use std::fmt;

/// One reply of RESP2 or RESP3.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum Raw {
    /// A line, or a header with its string; all of its bytes.
    Leaf(Vec<u8>),
    /// An aggregate: its header with the line end, and its elements.
    Node(Vec<u8>, Vec<Raw>),
}

impl Raw {
    /// The reply that `bytes` begin with, and its length; `None` if it is not complete.
    pub fn parse(bytes: &[u8]) -> Option<(Raw, usize)> {
        let line_end = bytes.iter().position(|byte| *byte == b'\n')? + 1;
        let header = &bytes[..line_end];
        match header[0] {
            b'$' | b'!' | b'=' => {
                let Ok(len) = usize::try_from(number(header)) else {
                    return Some((Raw::Leaf(header.to_vec()), line_end));
                };
                let end = line_end + len + 2;
                Some((Raw::Leaf(bytes.get(..end)?.to_vec()), end))
            }
            b'*' | b'~' | b'>' | b'%' | b'|' => {
                let per_item = if matches!(header[0], b'%' | b'|') { 2 } else { 1 };
                let (mut items, mut end) = (Vec::new(), line_end);
                for _ in 0..(number(header).max(0) * per_item) {
                    let (item, len) = Raw::parse(&bytes[end..])?;
                    items.push(item);
                    end += len;
                }
                Some((Raw::Node(header.to_vec(), items), end))
            }
            _ => Some((Raw::Leaf(header.to_vec()), line_end)),
        }
    }

    /// The elements of an aggregate.
    pub fn items(&self) -> &[Raw] {
        match self {
            Raw::Leaf(_) => &[],
            Raw::Node(_, items) => items,
        }
    }

    /// The value behind a name in a map, which RESP2 writes as a flat array.
    pub fn field(&self, name: &str) -> Option<&Raw> {
        let mut pairs = self.items().chunks_exact(2);
        pairs.find(|pair| pair[0].text() == Some(name.as_bytes())).map(|pair| &pair[1])
    }

    /// The text of a string, a number or an error; of a null nothing.
    pub fn text(&self) -> Option<&[u8]> {
        let Raw::Leaf(bytes) = self else { return None };
        let line_end = bytes.iter().position(|byte| *byte == b'\n')? + 1;
        match bytes[0] {
            b'_' => None,
            b'$' | b'!' | b'=' => bytes.get(line_end..bytes.len().checked_sub(2)?),
            _ => bytes.get(1..line_end - 2),
        }
    }

    pub fn integer(&self) -> Option<i64> {
        match self {
            Raw::Leaf(bytes) if bytes[0] == b':' => Some(number(bytes)),
            _ => None,
        }
    }

    pub fn is_error(&self) -> bool {
        matches!(self, Raw::Leaf(bytes) if bytes[0] == b'-' || bytes[0] == b'!')
    }

    /// The same kind, and for aggregates the same number of elements.
    pub fn has_shape_of(&self, other: &Raw) -> bool {
        match (self, other) {
            (Raw::Leaf(a), Raw::Leaf(b)) => {
                a[0] == b[0] && self.text().is_some() == other.text().is_some()
            }
            (Raw::Node(a, _), Raw::Node(b, _)) => a == b,
            _ => false,
        }
    }

    /// The same reply with the elements of its outermost aggregate in order, `per_item` at a time.
    pub fn sorted(&self, per_item: usize) -> Raw {
        match self {
            Raw::Leaf(_) => self.clone(),
            Raw::Node(header, items) => {
                let mut groups: Vec<&[Raw]> = items.chunks(per_item).collect();
                groups.sort();
                Raw::Node(header.clone(), groups.concat())
            }
        }
    }
}

/// The number behind a header's first byte.
fn number(header: &[u8]) -> i64 {
    let text = header.get(1..header.len().saturating_sub(2)).unwrap_or_default();
    std::str::from_utf8(text).ok().and_then(|text| text.parse().ok()).unwrap_or(-1)
}

/// As on the wire, with escapes, and cut where it gets long.
impl fmt::Debug for Raw {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const SHOWN_MAX: usize = 300;
        match self {
            Raw::Leaf(bytes) => {
                let shown = &bytes[..bytes.len().min(SHOWN_MAX)];
                write!(f, "{}", shown.escape_ascii())?;
                if shown.len() < bytes.len() {
                    write!(f, "... ({} bytes)", bytes.len())?;
                }
                Ok(())
            }
            Raw::Node(header, items) => {
                write!(f, "{}", header.escape_ascii())?;
                for item in items.iter().take(60) {
                    write!(f, " {item:?}")?;
                }
                if items.len() > 60 { write!(f, " ...") } else { Ok(()) }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_byte_is_kept_and_a_part_is_no_reply() {
        let bytes = b"*3\r\n$2\r\na\n\r\n%1\r\n+k\r\n:5\r\n$-1\r\n";
        let (raw, len) = Raw::parse(bytes).expect("complete");
        assert_eq!(len, bytes.len());
        assert_eq!(raw.items()[0].text(), Some(&b"a\n"[..]));
        assert_eq!(raw.items()[1].items()[1].integer(), Some(5));
        assert_eq!(raw.items()[2].text(), None);
        assert!((0..len).all(|end| Raw::parse(&bytes[..end]).is_none()));
    }

    #[test]
    fn sorting_keeps_pairs_together() {
        let parse = |text: &str| Raw::parse(text.as_bytes()).expect("complete").0;
        let one = parse("*4\r\n+a\r\n+2\r\n+b\r\n+1\r\n");
        let other = parse("*4\r\n+b\r\n+1\r\n+a\r\n+2\r\n");
        assert_ne!(one, other);
        assert_eq!(one.sorted(2), other.sorted(2));
        assert_ne!(one.sorted(2), parse("*4\r\n+a\r\n+1\r\n+b\r\n+2\r\n").sorted(2));
    }
}
