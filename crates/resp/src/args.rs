//! A request's arguments: places in a buffer, seen as byte strings.
//!
//! Nothing is copied between the receive buffer and the command. A [`Span`] says where an argument
//! lies, [`Args`] pairs the spans with the bytes. [`ArgsBuf`] owns both, for those who have no
//! receive buffer: scripts, replication, tests.

use std::fmt;
use std::iter::FusedIterator;
use std::ops::{Index, Range};

/// An argument's place in its buffer. A request is at most 4 GiB long.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Span {
    pub start: u32,
    pub len: u32,
}

impl Span {
    /// The positions that the argument takes up.
    #[inline]
    pub fn range(self) -> Range<usize> {
        self.start as usize..self.start as usize + self.len as usize
    }
}

/// The arguments of one request, the command's name first.
#[derive(Clone, Copy, Default)]
pub struct Args<'a> {
    bytes: &'a [u8],
    spans: &'a [Span],
}

impl<'a> Args<'a> {
    /// `spans` must have been made for `bytes`; one that points outside reads as empty.
    #[inline]
    pub fn new(bytes: &'a [u8], spans: &'a [Span]) -> Args<'a> {
        Args { bytes, spans }
    }

    /// The number of arguments, the name included.
    #[inline]
    pub fn len(self) -> usize {
        self.spans.len()
    }

    #[inline]
    pub fn is_empty(self) -> bool {
        self.spans.is_empty()
    }

    /// Argument `index`; 0 is the command's name.
    #[inline]
    pub fn get(self, index: usize) -> Option<&'a [u8]> {
        self.spans.get(index).map(|span| self.slice(*span))
    }

    /// The command's name, as the client wrote it; empty if there are no arguments.
    #[inline]
    pub fn name(self) -> &'a [u8] {
        self.get(0).unwrap_or_default()
    }

    /// The arguments without the first `index`.
    #[inline]
    pub fn from(self, index: usize) -> Args<'a> {
        Args { bytes: self.bytes, spans: self.spans.get(index..).unwrap_or_default() }
    }

    /// The first `len` arguments, or all if there are fewer.
    #[inline]
    pub fn first(self, len: usize) -> Args<'a> {
        Args { bytes: self.bytes, spans: &self.spans[..len.min(self.spans.len())] }
    }

    /// The sum of the arguments' lengths.
    pub fn len_bytes(self) -> usize {
        self.spans.iter().map(|span| span.len as usize).sum()
    }

    #[inline]
    pub fn iter(self) -> Iter<'a> {
        Iter { bytes: self.bytes, spans: self.spans.iter() }
    }

    #[inline]
    fn slice(self, span: Span) -> &'a [u8] {
        slice(self.bytes, span)
    }
}

#[inline]
fn slice(bytes: &[u8], span: Span) -> &[u8] {
    bytes.get(span.range()).unwrap_or_default()
}

/// For commands whose arity has been checked: like a slice, it panics where there is no argument.
impl Index<usize> for Args<'_> {
    type Output = [u8];

    #[inline]
    fn index(&self, index: usize) -> &[u8] {
        slice(self.bytes, self.spans[index])
    }
}

impl<'a> IntoIterator for Args<'a> {
    type Item = &'a [u8];
    type IntoIter = Iter<'a>;

    #[inline]
    fn into_iter(self) -> Iter<'a> {
        self.iter()
    }
}

impl fmt::Debug for Args<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.iter().map(|arg| arg.escape_ascii().to_string())).finish()
    }
}

/// The arguments in order, from either end.
#[derive(Clone)]
pub struct Iter<'a> {
    bytes: &'a [u8],
    spans: std::slice::Iter<'a, Span>,
}

impl<'a> Iterator for Iter<'a> {
    type Item = &'a [u8];

    #[inline]
    fn next(&mut self) -> Option<&'a [u8]> {
        self.spans.next().map(|span| slice(self.bytes, *span))
    }

    #[inline]
    fn size_hint(&self) -> (usize, Option<usize>) {
        self.spans.size_hint()
    }
}

impl DoubleEndedIterator for Iter<'_> {
    #[inline]
    fn next_back(&mut self) -> Option<Self::Item> {
        self.spans.next_back().map(|span| slice(self.bytes, *span))
    }
}

impl ExactSizeIterator for Iter<'_> {}
impl FusedIterator for Iter<'_> {}

/// The arguments do not fit into one request: together they are longer than 4 GiB.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ArgsTooLong;

impl fmt::Display for ArgsTooLong {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("arguments are longer than 4 GiB")
    }
}

impl std::error::Error for ArgsTooLong {}

/// Arguments with a buffer of their own.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ArgsBuf {
    bytes: Vec<u8>,
    spans: Vec<Span>,
}

impl ArgsBuf {
    pub fn new() -> ArgsBuf {
        ArgsBuf::default()
    }

    /// Appends one argument.
    pub fn push(&mut self, arg: &[u8]) -> Result<(), ArgsTooLong> {
        let start = u32::try_from(self.bytes.len()).map_err(|_| ArgsTooLong)?;
        let len = u32::try_from(arg.len()).map_err(|_| ArgsTooLong)?;
        start.checked_add(len).ok_or(ArgsTooLong)?;
        self.bytes.extend_from_slice(arg);
        self.spans.push(Span { start, len });
        Ok(())
    }

    /// Drops the arguments and keeps the memory.
    pub fn clear(&mut self) {
        self.bytes.clear();
        self.spans.clear();
    }

    pub fn len(&self) -> usize {
        self.spans.len()
    }

    pub fn is_empty(&self) -> bool {
        self.spans.is_empty()
    }

    #[inline]
    pub fn as_args(&self) -> Args<'_> {
        Args::new(&self.bytes, &self.spans)
    }
}

/// For tests and constants. Panics past 4 GiB; use [`ArgsBuf::push`] for data from outside.
impl<T: AsRef<[u8]>> FromIterator<T> for ArgsBuf {
    fn from_iter<I: IntoIterator<Item = T>>(args: I) -> ArgsBuf {
        let mut buf = ArgsBuf::new();
        for arg in args {
            buf.push(arg.as_ref()).expect("arguments written in a program are shorter than 4 GiB");
        }
        buf
    }
}

impl From<Args<'_>> for ArgsBuf {
    fn from(args: Args<'_>) -> ArgsBuf {
        args.iter().collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn args_are_slices_of_the_buffer() {
        let buf: ArgsBuf = ["SET", "key", "", "value"].into_iter().collect();
        let args = buf.as_args();
        assert_eq!((args.len(), args.name(), args.len_bytes()), (4, &b"SET"[..], 11));
        assert_eq!(&args[1], b"key");
        assert_eq!(args.get(2), Some(&b""[..]));
        assert_eq!(args.get(4), None);
        assert_eq!(args.iter().rev().map(<[u8]>::len).collect::<Vec<_>>(), [5, 0, 3, 3]);
        assert_eq!(args.from(1).iter().len(), 3);
        assert_eq!(args.from(9).len(), 0);
        assert_eq!(args.first(2).len(), 2);
        assert_eq!(ArgsBuf::from(args.from(3)).as_args().name(), b"value");
        assert_eq!(format!("{:?}", args.first(2)), r#"["SET", "key"]"#);
    }

    #[test]
    fn a_span_outside_of_the_buffer_reads_as_empty() {
        let spans = [Span { start: u32::MAX, len: u32::MAX }, Span { start: 1, len: 2 }];
        let args = Args::new(b"abc", &spans);
        assert_eq!((&args[0], &args[1]), (&b""[..], &b"bc"[..]));
    }
}
