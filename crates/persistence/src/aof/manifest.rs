//! The manifest: which files make up the append-only file.
//!
//! A line for each: `file NAME seq N type T`, where T is `b` for the base, `i` for an increment,
//! `h` for one that is no longer needed. More pairs of words may follow, of which nothing is known
//! here. Lines that begin with `#` do not count. A name with special bytes is quoted as inline
//! requests quote.

use std::fs::File;
use std::io::{self, ErrorKind, Read};
use std::path::Path;

use kvasir_resp::inline::{quote, split_words};

/// The longest line, in bytes without its end.
const LINE_MAX: usize = 1024;

/// What is wrong with a line, in Redis's words: people search for them.
/// No manifest is longer: that would be 100,000 files.
const SIZE_MAX: u64 = 16 << 20;
const TOO_LONG: &str = "The AOF manifest file contains too long line";
const SPELLING: &str = "Invalid AOF manifest file format";
const EMPTY: &str = "Found an empty AOF manifest";

/// A file in the directory.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Part {
    pub name: String,
    pub seq: u64,
}

#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Manifest {
    pub base: Option<Part>,
    /// Replaced by others; to be deleted.
    pub history: Vec<Part>,
    /// In their order.
    pub increments: Vec<Part>,
}

impl Manifest {
    /// The text of a manifest.
    pub fn read(path: &Path) -> io::Result<Vec<u8>> {
        let mut text = Vec::new();
        File::open(path)?.take(SIZE_MAX + 1).read_to_end(&mut text)?;
        match text.len() as u64 {
            0..=SIZE_MAX => Ok(text),
            _ => Err(io::Error::new(ErrorKind::InvalidData, "a manifest of more than 16 MiB")),
        }
    }

    /// Fails with the number of the line, from 1, and what is wrong with it.
    pub fn parse(text: &[u8]) -> Result<Manifest, (usize, &'static str)> {
        if text.is_empty() {
            return Err((1, EMPTY));
        }
        let mut manifest = Manifest::default();
        let body = text.strip_suffix(b"\n").ok_or((1, TOO_LONG))?;
        for (index, line) in body.split(|byte| *byte == b'\n').enumerate() {
            let line = line.strip_suffix(b"\r").unwrap_or(line);
            manifest.take_line(line).map_err(|what| (index + 1, what))?;
        }
        let is_empty = manifest == Manifest::default();
        if is_empty { Err((1, EMPTY)) } else { Ok(manifest) }
    }

    fn take_line(&mut self, line: &[u8]) -> Result<(), &'static str> {
        if line.first() == Some(&b'#') {
            return Ok(());
        }
        if line.len() > LINE_MAX {
            return Err(TOO_LONG);
        }
        let (kind, part) = parse_line(line)?;
        match kind {
            b'b' if self.base.is_some() => return Err("Found duplicate base file information"),
            b'b' => self.base = Some(part),
            b'h' => self.history.push(part),
            b'i' if self.increments.last().is_some_and(|last| last.seq >= part.seq) => {
                return Err("Found a non-monotonic sequence number");
            }
            b'i' => self.increments.push(part),
            _ => return Err("Unknown AOF file type"),
        }
        Ok(())
    }

    pub fn to_bytes(&self) -> Vec<u8> {
        let mut bytes = Vec::new();
        let parts = [('b', self.base.as_slice()), ('h', &self.history), ('i', &self.increments)];
        for (kind, parts) in parts {
            for Part { name, seq } in parts {
                let name = String::from_utf8_lossy(&quote(name.as_bytes())).into_owned();
                let line = format!("file {name} seq {seq} type {kind}\n");
                bytes.extend_from_slice(line.as_bytes());
            }
        }
        bytes
    }

    /// The highest number of a base; 0: there was none.
    pub fn last_base(&self) -> u64 {
        let bases = self.base.iter().chain(&self.history);
        bases.map(|part| part.seq).max().unwrap_or(0)
    }

    /// The highest number of an increment; 0: there is none.
    pub fn last_increment(&self) -> u64 {
        self.increments.last().map_or(0, |last| last.seq)
    }
}

fn parse_line(line: &[u8]) -> Result<(u8, Part), &'static str> {
    let mut words = Vec::new();
    let mut scratch = Vec::new();
    split_words(line, &mut words, &mut scratch).map_err(|_| SPELLING)?;
    let words: Vec<&[u8]> =
        words.iter().map(|span| scratch.get(span.range()).unwrap_or_default()).collect();
    let (mut name, mut seq, mut kind) = (None, None, None);
    if words.len() < 6 || !words.len().is_multiple_of(2) {
        return Err(SPELLING);
    }
    for pair in words.chunks_exact(2) {
        match pair[0].to_ascii_lowercase().as_slice() {
            b"file" => name = std::str::from_utf8(pair[1]).ok(),
            b"seq" => seq = std::str::from_utf8(pair[1]).ok().and_then(|text| text.parse().ok()),
            b"type" => kind = pair[1].first(),
            _ => {}
        }
    }
    let name = name.filter(|name| !name.is_empty()).ok_or(SPELLING)?;
    if name.contains('/') {
        return Err("File can't be a path, just a filename");
    }
    let seq = seq.filter(|seq| *seq > 0).ok_or(SPELLING)?;
    Ok((*kind.ok_or(SPELLING)?, Part { name: name.into(), seq }))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn part(name: &str, seq: u64) -> Part {
        Part { name: name.into(), seq }
    }

    #[test]
    fn what_is_written_is_read() {
        let manifest = Manifest {
            base: Some(part("a.2.base.rdb", 2)),
            history: vec![part("a.1.base.rdb", 1), part("a.1.incr.aof", 1)],
            increments: vec![part("a b\"\\\u{e4}.2.incr.aof", 2), part("a.9.incr.aof", 9)],
        };
        assert_eq!(Manifest::parse(&manifest.to_bytes()), Ok(manifest.clone()));
        assert_eq!((manifest.last_base(), manifest.last_increment()), (2, 9));
    }

    /// As Redis quotes them, which reads no other escapes.
    #[test]
    fn names_with_special_bytes_are_quoted() {
        for (name, text) in [
            ("a b", r#""a b""#),
            ("a\nb\tc\rd", r#""a\nb\tc\rd""#),
            ("\u{7}\u{8}\u{1}", r#""\a\b\x01""#),
            ("a\"b\\c", r#""a\"b\\c""#),
            ("plain-1.aof", "plain-1.aof"),
        ] {
            assert_eq!(quote(name.as_bytes()), text.as_bytes());
            let manifest = Manifest { base: Some(part(name, 1)), ..Manifest::default() };
            assert_eq!(Manifest::parse(&manifest.to_bytes()), Ok(manifest));
        }
    }

    #[test]
    fn manifests_of_redis_are_read() {
        let text = b"file appendonly.aof.1.base.rdb seq 1 type b\n# a comment\n\
            FILE appendonly.aof.1.incr.aof SEQ 1 type i startoffset 17\n";
        let manifest = Manifest::parse(text).unwrap();
        assert_eq!(manifest.base, Some(part("appendonly.aof.1.base.rdb", 1)));
        assert_eq!(manifest.increments, [part("appendonly.aof.1.incr.aof", 1)]);
        assert_eq!(Manifest::default().last_base(), 0);
    }

    #[test]
    fn what_is_wrong_is_named() {
        for (text, line) in [
            ("", 1),
            ("\n", 1),
            ("# only\n", 1),
            ("file a seq 1 type b", 1),
            ("file a seq 1 type b\n\n", 2),
            ("file a seq 1 type b\nfile b seq 2 type b\n", 2),
            ("file a seq 2 type i\nfile b seq 2 type i\n", 2),
            ("file a seq 0 type b\n", 1),
            ("file a/b seq 1 type b\n", 1),
            ("file a seq 1 type x\n", 1),
            ("file a seq 1\n", 1),
            ("file a seq 1 type b x\n", 1),
            ("file \"a seq 1 type b\n", 1),
        ] {
            let error = Manifest::parse(text.as_bytes()).expect_err(text);
            assert_eq!(error.0, line, "{text:?}: {}", error.1);
        }
        let long = format!("file {} seq 1 type b\n", "a".repeat(LINE_MAX));
        assert!(Manifest::parse(long.as_bytes()).is_err());
    }
}
