//! The words of a line of redis.conf: quotes and escapes. How a word is written back is
//! `kvasir_resp::inline`.
//!
//! The rules are those of Redis's configuration file and inline commands: words are separated by
//! white space; `"..."` knows `\n \r \t \a \b \xHH` and takes any other escaped byte as it is;
//! `'...'` knows only `\'`; quotes may open and close inside a word.

/// The words of `line`, or `None` where a quote is not closed.
pub fn split(line: &[u8]) -> Option<Vec<Vec<u8>>> {
    let mut words = Vec::new();
    let mut rest = line.trim_ascii_start();
    while !rest.is_empty() {
        let (word, after) = next_word(rest)?;
        words.push(word);
        rest = after.trim_ascii_start();
    }
    Some(words)
}

/// The word that `text` starts with, and what follows it.
fn next_word(text: &[u8]) -> Option<(Vec<u8>, &[u8])> {
    let mut word = Vec::new();
    let mut rest = text;
    while let Some((&byte, after)) = rest.split_first() {
        match byte {
            b'"' => rest = double_quoted(&mut word, after)?,
            b'\'' => rest = single_quoted(&mut word, after)?,
            0 => break,
            _ if byte.is_ascii_whitespace() => break,
            _ => {
                word.push(byte);
                rest = after;
            }
        }
    }
    // A NUL byte ends a word as white space does.
    Some((word, rest.strip_prefix(b"\0").unwrap_or(rest)))
}

/// Appends what stands up to the closing quote, and returns what follows it.
fn double_quoted<'a>(word: &mut Vec<u8>, mut rest: &'a [u8]) -> Option<&'a [u8]> {
    loop {
        match rest {
            [b'"', after @ ..] => return Some(after),
            [b'\\', b'x', high, low, after @ ..]
                if high.is_ascii_hexdigit() && low.is_ascii_hexdigit() =>
            {
                word.push(hex(*high) << 4 | hex(*low));
                rest = after;
            }
            [b'\\', escaped, after @ ..] => {
                word.push(unescape(*escaped));
                rest = after;
            }
            [byte, after @ ..] => {
                word.push(*byte);
                rest = after;
            }
            [] => return None,
        }
    }
}

fn single_quoted<'a>(word: &mut Vec<u8>, mut rest: &'a [u8]) -> Option<&'a [u8]> {
    loop {
        match rest {
            [b'\'', after @ ..] => return Some(after),
            [b'\\', b'\'', after @ ..] => {
                word.push(b'\'');
                rest = after;
            }
            [byte, after @ ..] => {
                word.push(*byte);
                rest = after;
            }
            [] => return None,
        }
    }
}

fn unescape(byte: u8) -> u8 {
    match byte {
        b'n' => b'\n',
        b'r' => b'\r',
        b't' => b'\t',
        b'a' => 0x07,
        b'b' => 0x08,
        other => other,
    }
}

/// The value of an ASCII hexadecimal digit.
fn hex(digit: u8) -> u8 {
    match digit {
        b'0'..=b'9' => digit - b'0',
        b'a'..=b'f' => digit - b'a' + 10,
        _ => digit - b'A' + 10,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use kvasir_resp::inline::quote;
    use proptest::prelude::*;

    fn check(line: &str, expect: Option<&[&str]>) {
        let words = split(line.as_bytes());
        let expect = expect
            .map(|words| words.iter().map(|word| word.as_bytes().to_vec()).collect::<Vec<_>>());
        assert_eq!(words, expect, "{line:?}");
    }

    #[test]
    fn lines_split_as_in_redis() {
        check("", Some(&[]));
        check("  a\tb \r\n", Some(&["a", "b"]));
        check("port 1 # no comment", Some(&["port", "1", "#", "no", "comment"]));
        check(r#"a "b c" 'd e'"#, Some(&["a", "b c", "d e"]));
        check(r#""""#, Some(&[""]));
        check(r#"'it\'s' 'a\nb'"#, Some(&["it's", r"a\nb"]));
        check(r#""\x41\n\t\q\"" x"#, Some(&["A\n\tq\"", "x"]));
        check(r#""\xZZ""#, Some(&["xZZ"]));
        check(r#"pre"quoted""#, Some(&["prequoted"]));
        check(r#""a"b 'a''b'"c""#, Some(&["ab", "abc"]));
        check(r#"a"b"#, None);
        check(r#"a "b"#, None);
        check("a 'b", None);
        check(r#""a\"#, None);
    }

    proptest! {
        #[test]
        fn quoted_words_read_back(words in prop::collection::vec(any::<Vec<u8>>(), 0..5)) {
            let line = words.iter().map(|word| quote(word)).collect::<Vec<_>>().join(&b' ');
            prop_assert_eq!(split(&line), Some(words));
        }

        #[test]
        fn any_bytes_split_or_are_refused(line in any::<Vec<u8>>()) {
            let _ = split(&line);
        }
    }
}
