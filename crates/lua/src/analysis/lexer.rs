//! The tokens of Lua 5.1, exactly as its own lexer finds them: what it takes for code must not be
//! taken for a string or a comment here, or a call could hide.

use crate::number::parse_number;

/// One token. Names and strings hold their bytes, with escapes resolved.
#[derive(Clone, Debug, PartialEq)]
pub enum Token {
    Name(Vec<u8>),
    Text(Vec<u8>),
    Number(f64),
    /// A reserved word.
    Word(&'static str),
    /// An operator or another sign.
    Sign(&'static str),
    End,
}

const WORDS: [&str; 21] = [
    "and", "break", "do", "else", "elseif", "end", "false", "for", "function", "if", "in", "local",
    "nil", "not", "or", "repeat", "return", "then", "true", "until", "while",
];

/// Longer ones first.
const SIGNS: [&str; 26] = [
    "...", "..", "==", "~=", "<=", ">=", "+", "-", "*", "/", "%", "^", "#", "<", ">", "=", "(",
    ")", "{", "}", "[", "]", ";", ":", ",", ".",
];

/// A text that is no Lua.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Malformed;

#[derive(Clone, Copy)]
pub struct Lexer<'a> {
    rest: &'a [u8],
}

impl<'a> Lexer<'a> {
    pub fn new(source: &'a [u8]) -> Lexer<'a> {
        Lexer { rest: source }
    }

    pub fn next(&mut self) -> Result<Token, Malformed> {
        self.skip_space()?;
        let Some(&first) = self.rest.first() else { return Ok(Token::End) };
        match first {
            b'A'..=b'Z' | b'a'..=b'z' | b'_' => Ok(self.name()),
            b'0'..=b'9' => self.number(),
            b'.' if self.rest.get(1).is_some_and(u8::is_ascii_digit) => self.number(),
            b'"' | b'\'' => self.text(first).map(Token::Text),
            b'[' if self.long_level().is_some() => self.long_text().map(Token::Text),
            // `[=` is an error to Lua, not a bracket.
            b'[' if self.rest.get(1) == Some(&b'=') => Err(Malformed),
            _ => self.sign(),
        }
    }

    /// Space and comments.
    fn skip_space(&mut self) -> Result<(), Malformed> {
        loop {
            let is_space = |byte: &&u8| matches!(byte, b' ' | b'\t'..=b'\r');
            self.skip(self.rest.iter().take_while(is_space).count());
            if !self.rest.starts_with(b"--") {
                return Ok(());
            }
            self.skip(2);
            if self.long_level().is_some() {
                self.long_text()?;
            } else {
                let is_line = |byte: &&u8| !matches!(byte, b'\n' | b'\r');
                self.skip(self.rest.iter().take_while(is_line).count());
            }
        }
    }

    fn skip(&mut self, len: usize) {
        self.rest = self.rest.get(len..).unwrap_or_default();
    }

    fn name(&mut self) -> Token {
        let is_part = |byte: &&u8| byte.is_ascii_alphanumeric() || **byte == b'_';
        let (name, rest) = self.rest.split_at(self.rest.iter().take_while(is_part).count());
        self.rest = rest;
        match WORDS.iter().find(|word| word.as_bytes() == name) {
            Some(word) => Token::Word(word),
            None => Token::Name(name.to_vec()),
        }
    }

    fn sign(&mut self) -> Result<Token, Malformed> {
        let sign = SIGNS.iter().find(|sign| self.rest.starts_with(sign.as_bytes()));
        let sign = sign.ok_or(Malformed)?;
        self.skip(sign.len());
        Ok(Token::Sign(sign))
    }

    /// Digits and points, an exponent with its sign, and whatever letters follow must together be
    /// a number.
    fn number(&mut self) -> Result<Token, Malformed> {
        let count = |text: &[u8], is_part: fn(&u8) -> bool| {
            text.iter().take_while(|byte| is_part(byte)).count()
        };
        let mut len = count(self.rest, |byte| byte.is_ascii_digit() || *byte == b'.');
        if matches!(self.rest.get(len), Some(b'e' | b'E')) {
            len += 1 + usize::from(matches!(self.rest.get(len + 1), Some(b'+' | b'-')));
        }
        let rest = self.rest.get(len..).unwrap_or_default();
        len += count(rest, |byte| byte.is_ascii_alphanumeric() || *byte == b'_');
        let number = parse_number(&self.rest[..len]).ok_or(Malformed)?;
        self.skip(len);
        Ok(Token::Number(number))
    }

    fn text(&mut self, quote: u8) -> Result<Vec<u8>, Malformed> {
        self.skip(1);
        let mut text = Vec::new();
        loop {
            let (&byte, rest) = self.rest.split_first().ok_or(Malformed)?;
            self.rest = rest;
            match byte {
                b'\n' | b'\r' => return Err(Malformed),
                b'\\' => self.escape(&mut text)?,
                _ if byte == quote => return Ok(text),
                _ => text.push(byte),
            }
        }
    }

    fn escape(&mut self, text: &mut Vec<u8>) -> Result<(), Malformed> {
        let &byte = self.rest.first().ok_or(Malformed)?;
        if byte.is_ascii_digit() {
            let len = self.rest.iter().take(3).take_while(|byte| byte.is_ascii_digit()).count();
            let digits = &self.rest[..len];
            let code = digits.iter().fold(0u32, |code, digit| code * 10 + u32::from(digit - b'0'));
            text.push(u8::try_from(code).map_err(|_| Malformed)?);
            self.skip(len);
            return Ok(());
        }
        self.skip(1);
        text.push(match byte {
            b'a' => 0x07,
            b'b' => 0x08,
            b'f' => 0x0C,
            b'n' => b'\n',
            b'r' => b'\r',
            b't' => b'\t',
            b'v' => 0x0B,
            b'\n' | b'\r' => {
                self.skip_second_of_line_end(byte);
                b'\n'
            }
            other => other,
        });
        Ok(())
    }

    /// `\r\n` and `\n\r` are one line end.
    fn skip_second_of_line_end(&mut self, first: u8) {
        match self.rest.first() {
            Some(second @ (b'\n' | b'\r')) if *second != first => self.skip(1),
            _ => {}
        }
    }

    /// The count of `=` in `[==[`, if that is what stands here.
    fn long_level(&self) -> Option<usize> {
        let inner = self.rest.strip_prefix(b"[")?;
        let level = inner.iter().take_while(|byte| **byte == b'=').count();
        (inner.get(level) == Some(&b'[')).then_some(level)
    }

    fn long_text(&mut self) -> Result<Vec<u8>, Malformed> {
        let level = self.long_level().ok_or(Malformed)?;
        self.skip(level + 2);
        let close = [&b"]"[..], &b"=".repeat(level), b"]"].concat();
        let end = self.rest.windows(close.len()).position(|window| window == close);
        let end = end.ok_or(Malformed)?;
        let text = &self.rest[..end];
        // Lua refuses a `[[` inside of `[[ ]]`, which it could once nest.
        if level == 0 && text.windows(2).any(|window| window == b"[[") {
            return Err(Malformed);
        }
        self.skip(end + close.len());
        Ok(unified_lines(text))
    }
}

/// Without the line end right at the beginning; each other one as `\n`.
fn unified_lines(text: &[u8]) -> Vec<u8> {
    let mut lines = Vec::with_capacity(text.len());
    let mut rest = text;
    while let Some((&byte, after)) = rest.split_first() {
        rest = after;
        if !matches!(byte, b'\n' | b'\r') {
            lines.push(byte);
            continue;
        }
        if let Some((second @ (b'\n' | b'\r'), after)) = rest.split_first()
            && *second != byte
        {
            rest = after;
        }
        lines.push(b'\n');
    }
    if text.first().is_some_and(|byte| matches!(byte, b'\n' | b'\r')) {
        lines.remove(0);
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tokens(source: &str) -> Result<Vec<Token>, Malformed> {
        let (mut lexer, mut tokens) = (Lexer::new(source.as_bytes()), Vec::new());
        loop {
            match lexer.next()? {
                Token::End => return Ok(tokens),
                token => tokens.push(token),
            }
        }
    }

    fn texts(source: &str, expected: &[&str]) {
        let expected: Vec<Token> =
            expected.iter().map(|text| Token::Text(text.as_bytes().to_vec())).collect();
        assert_eq!(tokens(source), Ok(expected), "{source}");
    }

    #[test]
    fn strings() {
        texts(r#""a" 'b"' "c\"\n\65\0651""#, &["a", "b\"", "c\"\nAA1"]);
        texts("'a\\\r\nb'", &["a\nb"]);
        texts("'\\x41'", &["x41"]);
        texts("[[a]b]] [==[\r\nc]]]=]d]==]", &["a]b", "c]]]=]d"]);
        texts("[=[[[]=]", &["[["]);
    }

    #[test]
    fn comments_are_skipped() {
        texts(
            "-- 'a'\n'b' --[[ 'c'\n'd']] 'e' --[ 'f'\n'g' --[==[ ]] ]==]'h'",
            &["b", "e", "g", "h"],
        );
        texts("--[=x\n'a'", &["a"]);
        texts("--", &[]);
    }

    #[test]
    fn numbers_and_signs() {
        use Token::{Number, Sign};
        assert_eq!(tokens("1..x"), Err(Malformed), "a number takes the points behind it");
        assert_eq!(tokens("1e+2..x a .. b").map(|tokens| tokens.len()), Ok(6));
        assert_eq!(
            tokens("1 .5 0x10 3e2"),
            Ok(vec![Number(1.0), Number(0.5), Number(16.0), Number(300.0)])
        );
        assert_eq!(tokens("...~=[]"), Ok(vec![Sign("..."), Sign("~="), Sign("["), Sign("]")]));
    }

    #[test]
    fn what_lua_refuses() {
        for source in
            ["'a", "'a\nb'", "[[a", "[=x", "!", "1x", "1..2", "'\\256'", "[[ [[ ]]", "é", "--[[ x"]
        {
            assert_eq!(tokens(source), Err(Malformed), "{source}");
        }
    }
}
