//! The quoting rules of a line: inline commands, redis.conf, redis-cli.
//!
//! The words of a line are separated by space. `"..."` knows the escapes `\n \r \t \b \a \xHH` and
//! `\` before any other byte; `'...'` knows only `\'`. Quotes may open and close inside a word, as
//! in a shell (`a"b c"d` is the word `ab cd`): so Valkey from 9.1 on; Redis wanted space behind a
//! closing one. A backslash before the last byte of a line is one of the word, or no quote would
//! close. A NUL byte ends the line, since Redis (`sdssplitargs`) reads a C string here.

use std::fmt;

use crate::args::Span;

/// A word as it is, or in double quotes where it would not read back as one word.
pub fn quote(word: &[u8]) -> Vec<u8> {
    let plain = |byte: &u8| byte.is_ascii_graphic() && !br#""'\"#.contains(byte);
    if !word.is_empty() && word.iter().all(plain) { word.to_vec() } else { quoted(word) }
}

/// A word in double quotes, with only printable ASCII between them, as Redis writes it
/// (`sdscatrepr`).
pub fn quoted(word: &[u8]) -> Vec<u8> {
    let mut out = vec![b'"'];
    for &byte in word {
        match byte {
            b'\\' | b'"' => out.extend([b'\\', byte]),
            b'\n' => out.extend(br"\n"),
            b'\r' => out.extend(br"\r"),
            b'\t' => out.extend(br"\t"),
            0x07 => out.extend(br"\a"),
            0x08 => out.extend(br"\b"),
            b' '..=b'~' => out.push(byte),
            _ => out.extend(format!("\\x{byte:02x}").into_bytes()),
        }
    }
    out.push(b'"');
    out
}

/// A quote was not closed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UnbalancedQuotes;

impl fmt::Display for UnbalancedQuotes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("unbalanced quotes")
    }
}

impl std::error::Error for UnbalancedQuotes {}

/// Appends the words of `line`, unquoted, to `scratch`, and their places in `scratch` to `spans`.
///
/// After an error, both are as they were before. What would lie past 4 GiB is no place of a
/// [`Span`]; the caller keeps `scratch` shorter (the parser does).
pub fn split_words(
    line: &[u8],
    spans: &mut Vec<Span>,
    scratch: &mut Vec<u8>,
) -> Result<(), UnbalancedQuotes> {
    let line = memchr::memchr(0, line).map_or(line, |end| &line[..end]);
    let (spans_before, scratch_before) = (spans.len(), scratch.len());
    let mut words = Words { rest: line, out: scratch };
    loop {
        words.skip_space();
        if words.rest.is_empty() {
            return Ok(());
        }
        let start = words.out.len();
        if words.word().is_err() {
            spans.truncate(spans_before);
            scratch.truncate(scratch_before);
            return Err(UnbalancedQuotes);
        }
        spans.push(Span { start: start as u32, len: (words.out.len() - start) as u32 });
    }
}

/// What C's `isspace` calls space.
fn is_space(byte: u8) -> bool {
    matches!(byte, b' ' | b'\t'..=b'\r')
}

struct Words<'a> {
    rest: &'a [u8],
    out: &'a mut Vec<u8>,
}

impl Words<'_> {
    fn skip_space(&mut self) {
        let space = self.rest.iter().take_while(|byte| is_space(**byte)).count();
        self.rest = &self.rest[space..];
    }

    /// One word. Inside of it, vertical tab and form feed do not separate.
    fn word(&mut self) -> Result<(), UnbalancedQuotes> {
        while let Some((&byte, rest)) = self.rest.split_first() {
            self.rest = rest;
            match byte {
                b' ' | b'\n' | b'\r' | b'\t' => return Ok(()),
                b'"' => self.double_quoted()?,
                b'\'' => self.single_quoted()?,
                _ => self.out.push(byte),
            }
        }
        Ok(())
    }

    fn double_quoted(&mut self) -> Result<(), UnbalancedQuotes> {
        loop {
            let (byte, len) = match self.rest {
                [] => return Err(UnbalancedQuotes),
                [b'"', rest @ ..] => {
                    self.rest = rest;
                    return Ok(());
                }
                [b'\\', b'x', high, low, ..]
                    if high.is_ascii_hexdigit() && low.is_ascii_hexdigit() =>
                {
                    (hex_digit(*high) << 4 | hex_digit(*low), 4)
                }
                [b'\\', escaped, _, ..] => (unescape(*escaped), 2),
                [byte, ..] => (*byte, 1),
            };
            self.out.push(byte);
            self.rest = &self.rest[len..];
        }
    }

    fn single_quoted(&mut self) -> Result<(), UnbalancedQuotes> {
        loop {
            let (byte, len) = match self.rest {
                [] => return Err(UnbalancedQuotes),
                [b'\'', rest @ ..] => {
                    self.rest = rest;
                    return Ok(());
                }
                [b'\\', b'\'', _, ..] => (b'\'', 2),
                [byte, ..] => (*byte, 1),
            };
            self.out.push(byte);
            self.rest = &self.rest[len..];
        }
    }
}

fn unescape(byte: u8) -> u8 {
    match byte {
        b'n' => b'\n',
        b'r' => b'\r',
        b't' => b'\t',
        b'b' => 0x08,
        b'a' => 0x07,
        other => other,
    }
}

/// The value of an ASCII hexadecimal digit.
fn hex_digit(byte: u8) -> u8 {
    match byte {
        b'0'..=b'9' => byte - b'0',
        _ => (byte | 0x20).wrapping_sub(b'a').wrapping_add(10),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn split(line: &[u8]) -> Result<Vec<Vec<u8>>, UnbalancedQuotes> {
        let (mut spans, mut scratch) = (vec![], b"before".to_vec());
        let result = split_words(line, &mut spans, &mut scratch);
        if result.is_err() {
            assert_eq!((spans.len(), &scratch[..]), (0, &b"before"[..]));
        }
        result.map(|()| spans.iter().map(|span| scratch[span.range()].to_vec()).collect())
    }

    #[test]
    fn words_are_unquoted_as_redis_does() {
        let cases: [(&[u8], &[&[u8]]); 23] = [
            (b"", &[]),
            (b" \t\x0b\x0c\r\n ", &[]),
            (b"PING", &[b"PING"]),
            (b"PING \r", &[b"PING"]),
            (b"a\rb", &[b"a", b"b"]),
            (b"\tab\x0bc\x0cd e", &[b"ab\x0bc\x0cd", b"e"]),
            (br#"ECHO "a\x41\n\"b""#, &[b"ECHO", b"aA\n\"b"]),
            (br#""\xZZ\q\a\b\t\r""#, &[b"xZZq\x07\x08\t\r"]),
            (br#""\xfF\xa""#, &[b"\xffxa"]),
            (br"'a\'b\n'", &[br"a'b\n"]),
            (br"'a\\ '", &[br"a\\ "]),
            (b"\"\" ''", &[b"", b""]),
            (br#"a"b c""#, &[b"ab c"]),
            (b"a'b c'\x0bd", &[b"ab c\x0bd"]),
            (br#"'a'b "a"b a"b"c"#, &[b"ab", b"ab", b"abc"]),
            (br#"'a''b'"c"d"" ''"#, &[b"abcd", b""]),
            (br#""a\""#, &[br"a\"]),
            (br"a'\'", &[br"a\"]),
            (br#""a\" "b"#, &[br#"a" b"#]),
            (br#""\\""#, &[br"\"]),
            (b"\xa0a\x85b", &[b"\xa0a\x85b"]),
            (br"a\nb", &[br"a\nb"]),
            (b"a\0b c", &[b"a"]),
        ];
        for (line, words) in cases {
            let split = split(line);
            assert_eq!(
                split.as_deref(),
                Ok(&words.iter().map(|w| w.to_vec()).collect::<Vec<_>>()[..])
            );
        }
    }

    #[test]
    fn unbalanced_quotes() {
        let cases: [&[u8]; 8] =
            [b"\"a", b"'a", b"a\"b", b"a'b", b"'a''b", b"\"a\\", b"\"a\\\"b", b"ok \"a\0\""];
        for line in cases {
            assert_eq!(split(line), Err(UnbalancedQuotes), "{}", line.escape_ascii());
        }
    }

    proptest! {
        #[test]
        fn any_line_splits_without_panic_into_no_more_than_its_length(line: Vec<u8>) {
            if let Ok(words) = split(&line) {
                prop_assert!(words.iter().map(Vec::len).sum::<usize>() <= line.len());
                prop_assert!(words.len() <= line.len());
            }
        }

        #[test]
        fn quoted_words_come_back(words in prop::collection::vec(any::<Vec<u8>>(), 0..5)) {
            let quote = |word: &Vec<u8>| word.iter().map(|b| format!("\\x{b:02x}")).collect::<String>();
            let line: Vec<String> = words.iter().map(|word| format!("\"{}\"", quote(word))).collect();
            prop_assert_eq!(split(line.join(" ").as_bytes()), Ok(words));
        }
    }
}
