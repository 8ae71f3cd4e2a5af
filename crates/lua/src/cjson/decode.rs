//! JSON as Lua values.

use mlua::{Lua, Value};

use super::{DEPTH_MAX, Options};
use crate::function::Raise;
use crate::number::number_prefix;
use crate::work::Work;

pub fn decode(work: Work<'_>, options: &Options, text: &[u8]) -> Result<Value, Raise> {
    if text.len() >= 2 && (text[0] == 0 || text[1] == 0) {
        return Err(Raise::error("JSON parser does not support UTF-16 or UTF-32"));
    }
    let mut decoder = Decoder {
        lua: work.lua,
        work,
        options,
        text,
        position: 0,
        depth: 0,
        unescaped: Vec::new(),
    };
    let token = decoder.token()?;
    let value = decoder.value(token)?;
    let token = decoder.token()?;
    match token.kind {
        Kind::End => Ok(value),
        _ => Err(expected("the end", &token)),
    }
}

/// What stands at a position of the text, from 0.
struct Token {
    kind: Kind,
    position: usize,
}

enum Kind {
    ObjectBegin,
    ObjectEnd,
    ArrayBegin,
    ArrayEnd,
    /// A string or a number.
    Value(Value),
    Boolean(bool),
    Null,
    Colon,
    Comma,
    End,
    Error(&'static str),
}

impl Kind {
    /// Its name in error texts.
    fn name(&self) -> &'static str {
        match self {
            Kind::ObjectBegin => "T_OBJ_BEGIN",
            Kind::ObjectEnd => "T_OBJ_END",
            Kind::ArrayBegin => "T_ARR_BEGIN",
            Kind::ArrayEnd => "T_ARR_END",
            Kind::Value(Value::String(_)) => "T_STRING",
            Kind::Value(_) => "T_NUMBER",
            Kind::Boolean(_) => "T_BOOLEAN",
            Kind::Null => "T_NULL",
            Kind::Colon => "T_COLON",
            Kind::Comma => "T_COMMA",
            Kind::End => "T_END",
            Kind::Error(text) => text,
        }
    }
}

fn expected(what: &str, token: &Token) -> Raise {
    let (found, position) = (token.kind.name(), token.position + 1);
    Raise::error(format!("Expected {what} but found {found} at character {position}"))
}

struct Decoder<'a> {
    lua: &'a Lua,
    work: Work<'a>,
    options: &'a Options,
    text: &'a [u8],
    position: usize,
    depth: i32,
    /// The string that is being read.
    unescaped: Vec<u8>,
}

/// Values.
impl Decoder<'_> {
    fn value(&mut self, token: Token) -> Result<Value, Raise> {
        self.work.step(0)?;
        match token.kind {
            Kind::Value(value) => Ok(value),
            Kind::Boolean(truth) => Ok(Value::Boolean(truth)),
            Kind::Null => Ok(Value::NULL),
            Kind::ObjectBegin => self.object(),
            Kind::ArrayBegin => self.array(),
            _ => Err(expected("value", &token)),
        }
    }

    fn object(&mut self) -> Result<Value, Raise> {
        self.descend()?;
        let table = self.lua.create_table()?;
        let mut token = self.token()?;
        if !matches!(token.kind, Kind::ObjectEnd) {
            loop {
                let Kind::Value(Value::String(key)) = token.kind else {
                    return Err(expected("object key string", &token));
                };
                let colon = self.token()?;
                if !matches!(colon.kind, Kind::Colon) {
                    return Err(expected("colon", &colon));
                }
                let token_of_value = self.token()?;
                table.raw_set(key, self.value(token_of_value)?)?;
                let separator = self.token()?;
                match separator.kind {
                    Kind::ObjectEnd => break,
                    Kind::Comma => token = self.token()?,
                    _ => return Err(expected("comma or object end", &separator)),
                }
            }
        }
        self.depth -= 1;
        Ok(Value::Table(table))
    }

    fn array(&mut self) -> Result<Value, Raise> {
        self.descend()?;
        let table = self.lua.create_table()?;
        let mut token = self.token()?;
        if !matches!(token.kind, Kind::ArrayEnd) {
            for index in 1.. {
                table.raw_seti(index, self.value(token)?)?;
                let separator = self.token()?;
                match separator.kind {
                    Kind::ArrayEnd => break,
                    Kind::Comma => token = self.token()?,
                    _ => return Err(expected("comma or array end", &separator)),
                }
            }
        }
        self.depth -= 1;
        Ok(Value::Table(table))
    }

    fn descend(&mut self) -> Result<(), Raise> {
        self.depth += 1;
        if self.depth <= self.options.decode_max_depth.min(DEPTH_MAX) {
            return Ok(());
        }
        let (depth, position) = (self.depth, self.position);
        let text = "Found too many nested data structures";
        Err(Raise::error(format!("{text} ({depth}) at character {position}")))
    }
}

/// Tokens.
impl Decoder<'_> {
    fn token(&mut self) -> Result<Token, Raise> {
        let space = |byte: &&u8| matches!(byte, b' ' | b'\t' | b'\n' | b'\r');
        self.position += self.rest().iter().take_while(space).count();
        let position = self.position;
        // A NUL ends the text.
        let byte = self.text.get(position).copied().unwrap_or(0);
        let kind = match byte {
            0 => return Ok(Token { kind: Kind::End, position }),
            b'{' => Kind::ObjectBegin,
            b'}' => Kind::ObjectEnd,
            b'[' => Kind::ArrayBegin,
            b']' => Kind::ArrayEnd,
            b':' => Kind::Colon,
            b',' => Kind::Comma,
            b'"' => return self.string(),
            _ => return self.word(),
        };
        self.position += 1;
        Ok(Token { kind, position })
    }

    fn rest(&self) -> &[u8] {
        self.text.get(self.position..).unwrap_or_default()
    }

    /// A number, or one of the words of JSON.
    fn word(&mut self) -> Result<Token, Raise> {
        let position = self.position;
        let rest = self.rest();
        let is_invalid = is_invalid_number(rest);
        let kind = if matches!(rest[0], b'-' | b'0'..=b'9') {
            if is_invalid && !self.options.decode_invalid_numbers {
                Kind::Error("invalid number")
            } else {
                self.number()
            }
        } else if rest.starts_with(b"true") {
            self.position += 4;
            Kind::Boolean(true)
        } else if rest.starts_with(b"false") {
            self.position += 5;
            Kind::Boolean(false)
        } else if rest.starts_with(b"null") {
            self.position += 4;
            Kind::Null
        } else if is_invalid && self.options.decode_invalid_numbers {
            self.number()
        } else {
            Kind::Error("invalid token")
        };
        Ok(Token { kind, position })
    }

    fn number(&mut self) -> Kind {
        match number_prefix(self.rest()) {
            Some((number, len)) => {
                self.position += len;
                Kind::Value(Value::Number(number))
            }
            None => Kind::Error("invalid number"),
        }
    }

    fn string(&mut self) -> Result<Token, Raise> {
        let position = self.position;
        self.position += 1;
        self.unescaped.clear();
        loop {
            let rest = self.text.get(self.position..).unwrap_or_default();
            let len = rest.iter().take_while(|byte| !matches!(byte, b'"' | b'\\' | 0)).count();
            self.unescaped.extend_from_slice(&rest[..len]);
            self.position += len;
            match rest.get(len) {
                Some(b'"') => break,
                Some(b'\\') => {
                    if let Err(text) = self.escape() {
                        return Ok(Token { kind: Kind::Error(text), position: self.position });
                    }
                }
                _ => {
                    let kind = Kind::Error("unexpected end of string");
                    return Ok(Token { kind, position: self.position });
                }
            }
        }
        self.position += 1;
        let text = self.lua.create_string(&self.unescaped)?;
        Ok(Token { kind: Kind::Value(Value::String(text)), position })
    }

    /// What a backslash stands before.
    fn escape(&mut self) -> Result<(), &'static str> {
        let rest = &self.text[self.position + 1..];
        let byte = match rest.first() {
            Some(byte @ (b'"' | b'\\' | b'/')) => *byte,
            Some(b'b') => 0x08,
            Some(b'f') => 0x0C,
            Some(b'n') => b'\n',
            Some(b'r') => b'\r',
            Some(b't') => b'\t',
            Some(b'u') => return self.unicode_escape(),
            _ => return Err("invalid escape code"),
        };
        self.unescaped.push(byte);
        self.position += 2;
        Ok(())
    }

    /// `\u00e9`, or two of them for a character outside of the basic plane.
    fn unicode_escape(&mut self) -> Result<(), &'static str> {
        let invalid = "invalid unicode escape code";
        let rest = &self.text[self.position..];
        let unit = hex_unit(rest).ok_or(invalid)?;
        let (code, len) = match unit {
            0xD800..=0xDBFF => {
                let low = hex_unit(&rest[6..]).filter(|low| (0xDC00..=0xDFFF).contains(low));
                let low = low.ok_or(invalid)?;
                (0x10000 + (unit - 0xD800) * 0x400 + (low - 0xDC00), 12)
            }
            _ => (unit, 6),
        };
        let character = char::from_u32(code).ok_or(invalid)?;
        self.unescaped.extend_from_slice(character.encode_utf8(&mut [0; 4]).as_bytes());
        self.position += len;
        Ok(())
    }
}

/// The four digits of `\uXXXX`.
fn hex_unit(text: &[u8]) -> Option<u32> {
    let digits = text.strip_prefix(b"\\u")?.get(..4)?;
    digits.iter().try_fold(0, |unit, digit| Some(unit * 16 + char::from(*digit).to_digit(16)?))
}

/// Whether a text begins as no number of JSON does, but as one that `strtod` may read.
fn is_invalid_number(text: &[u8]) -> bool {
    if text.starts_with(b"+") {
        return true;
    }
    let digits = text.strip_prefix(b"-").unwrap_or(text);
    let starts_with = |word: &[u8]| {
        digits.get(..word.len()).is_some_and(|start| start.eq_ignore_ascii_case(word))
    };
    match digits {
        [b'0', b'x' | b'X' | b'0'..=b'9', ..] => true,
        [byte, ..] if *byte <= b'9' => false,
        _ => starts_with(b"inf") || starts_with(b"nan"),
    }
}
