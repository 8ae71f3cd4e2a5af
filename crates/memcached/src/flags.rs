//! The flags of meta commands: one letter each, some with a value right behind it.

use crate::number;
use crate::tokens::Words;

/// An opaque token's length, its letter included.
const OPAQUE_MAX: usize = 32;

/// What the flags of a call ask for. What is to be told, and in which order, say the words.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Flags {
    /// The key is in base64, `b`.
    pub is_base64: bool,
    /// Nobody is to see from it that the value was used, `u`.
    pub leaves_no_trace: bool,
    pub wants_value: bool,
    /// Usual outcomes are not told, `q`.
    pub is_quiet: bool,
    pub marks_stale: bool,
    /// Make the key if it is not there, and let it live so long, `N`.
    pub vivify: Option<i32>,
    pub ttl: Option<i32>,
    /// Who asks with less time left than this is to make the value anew, `R`.
    pub recache: Option<i32>,
    pub id: Option<u64>,
    pub client_flags: u32,
    /// The letter of `M`, 0: none.
    pub mode: u8,
    pub delta: Option<u64>,
    pub initial: u64,
    /// A word of `O` is too long.
    pub has_long_opaque: bool,
}

pub const DUPLICATE: &str = "CLIENT_ERROR duplicate flag";
pub const INVALID: &str = "CLIENT_ERROR invalid flag";
pub const BAD_FORMAT: &str = "CLIENT_ERROR bad command line format";
pub const BAD_TOKEN: &str = "CLIENT_ERROR bad token in command line format";
pub const BAD_KEY: &str = "CLIENT_ERROR error decoding key";
pub const LONG_OPAQUE: &str = "CLIENT_ERROR opaque token too long";

impl Flags {
    /// Reads the words from `start` on. The last of several errors is the one that is told, but for
    /// what is no flag or stands twice.
    pub fn parse(words: Words<'_>, start: usize) -> Result<Flags, &'static str> {
        let mut flags = Flags::default();
        let (mut seen, mut error) = ([false; 127], None);
        for at in start..words.len() {
            let word = words.get(at);
            let is_new = |letter: u8| seen.get(usize::from(letter)).is_some_and(|seen| !seen);
            if !is_new(word[0]) {
                return Err(DUPLICATE);
            }
            seen[usize::from(word[0])] = true;
            match flags.take(word) {
                Ok(()) => {}
                Err(INVALID) => return Err(INVALID),
                // memcached forgets to say which flag it is, so an earlier error's text stays.
                Err(BAD_FORMAT) => error = error.or(Some(BAD_FORMAT)),
                Err(text) => error = Some(text),
            }
        }
        error.map_or(Ok(flags), Err)
    }

    fn take(&mut self, word: &[u8]) -> Result<(), &'static str> {
        let value = &word[1..];
        let time = || number::short(value).ok_or(BAD_TOKEN).map(Some);
        match word[0] {
            b'b' => self.is_base64 = true,
            b'N' => self.vivify = time()?,
            b'T' => self.ttl = time()?,
            b'R' => self.recache = time()?,
            b'O' => self.has_long_opaque |= word.len() > OPAQUE_MAX,
            b'v' => self.wants_value = true,
            b'u' => self.leaves_no_trace = true,
            b'q' => self.is_quiet = true,
            b'I' => self.marks_stale = true,
            b'F' => self.client_flags = number::unsigned_short(value).ok_or(BAD_FORMAT)?,
            b'C' => self.id = Some(number::unsigned(value).ok_or(BAD_TOKEN)?),
            b'M' if word.len() != 2 => return Err("CLIENT_ERROR incorrect length for M token"),
            b'M' => self.mode = value[0],
            b'J' => {
                let wrong = "CLIENT_ERROR invalid numeric initial value";
                self.initial = number::unsigned(value).ok_or(wrong)?;
            }
            b'D' => {
                let wrong = "CLIENT_ERROR invalid numeric delta value";
                self.delta = Some(number::unsigned(value).ok_or(wrong)?);
            }
            b'P' | b'L' | b'k' | b's' | b't' | b'c' | b'f' | b'l' | b'h' => {}
            _ => return Err(INVALID),
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(line: &str) -> Result<Flags, &'static str> {
        let mut spans = Vec::new();
        Words::cut(line.as_bytes(), line.len(), 100, &mut spans);
        Flags::parse(Words::new(line.as_bytes(), &spans), 0)
    }

    #[test]
    fn flags_and_what_is_wrong_with_them() {
        let flags = parse("v b k q T30 N-1 C77 F5 ME D9 J7 I u R5 t").expect("they are right");
        let expected = Flags {
            is_base64: true,
            leaves_no_trace: true,
            wants_value: true,
            is_quiet: true,
            marks_stale: true,
            vivify: Some(-1),
            ttl: Some(30),
            recache: Some(5),
            id: Some(77),
            client_flags: 5,
            mode: b'E',
            delta: Some(9),
            initial: 7,
            has_long_opaque: false,
        };
        assert_eq!(flags, expected);
        assert_eq!(parse("v v"), Err(DUPLICATE));
        assert_eq!(parse("Ta \u{e9}"), Err(DUPLICATE));
        assert_eq!(parse("Ta x"), Err(INVALID));
        assert_eq!(parse("Ta v"), Err(BAD_TOKEN));
        assert_eq!(parse("T"), Err(BAD_TOKEN));
        assert_eq!(parse("Fx"), Err(BAD_FORMAT));
        assert_eq!(parse("Cx Fx"), Err(BAD_TOKEN));
        assert_eq!(parse("MEE"), Err("CLIENT_ERROR incorrect length for M token"));
        assert!(parse(&format!("O{}", "x".repeat(32))).is_ok_and(|flags| flags.has_long_opaque));
    }
}
