//! The words of a line.

use kvasir_resp::args::Span;

/// Words that are looked at, but for keys of a `get`: as many as memcached has places for.
pub const WORDS_MAX: usize = 23;

/// A line cut into words, which spaces part. It ends at a zero byte, if it has one.
#[derive(Clone, Copy)]
pub struct Words<'a> {
    pub bytes: &'a [u8],
    spans: &'a [Span],
}

impl<'a> Words<'a> {
    /// Appends the spans of the words, `most` of them at most.
    pub fn cut(bytes: &[u8], line_len: usize, most: usize, spans: &mut Vec<Span>) {
        let line = &bytes[..line_len];
        let line = &line[..memchr::memchr(0, line).unwrap_or(line_len)];
        let (first, mut at) = (spans.len(), 0);
        while at < line.len() && spans.len() - first < most {
            let end = memchr::memchr(b' ', &line[at..]).map_or(line.len(), |len| at + len);
            if end > at {
                spans.push(Span { start: at as u32, len: (end - at) as u32 });
            }
            at = end + 1;
        }
    }

    pub fn new(bytes: &'a [u8], spans: &'a [Span]) -> Words<'a> {
        Words { bytes, spans }
    }

    pub fn len(self) -> usize {
        self.spans.len()
    }

    pub fn is_empty(self) -> bool {
        self.spans.is_empty()
    }

    /// A word; empty where there is none.
    pub fn get(self, index: usize) -> &'a [u8] {
        self.spans.get(index).map_or(&[], |span| &self.bytes[span.range()])
    }

    pub fn span(self, index: usize) -> Span {
        self.spans[index]
    }

    /// Whether the last word asks for no reply.
    pub fn end_in_noreply(self) -> bool {
        self.get(self.len().saturating_sub(1)) == b"noreply"
    }
}
