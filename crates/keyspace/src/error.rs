//! What a command tells a client that asked for something impossible.
//!
//! The texts are Redis's, byte for byte, since clients match on them.

use std::borrow::Cow;

/// An error reply: its code, a space, its text.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Error(Cow<'static, [u8]>);

impl Error {
    pub const SYNTAX: Error = Error::fixed("ERR syntax error");
    pub const NOT_INTEGER: Error = Error::fixed("ERR value is not an integer or out of range");
    pub const NOT_FLOAT: Error = Error::fixed("ERR value is not a valid float");
    pub const NO_KEY: Error = Error::fixed("ERR no such key");
    pub const DB_OUT_OF_RANGE: Error = Error::fixed("ERR DB index is out of range");
    pub const SAME_OBJECT: Error = Error::fixed("ERR source and destination objects are the same");
    pub const WRONG_TYPE: Error =
        Error::fixed("WRONGTYPE Operation against a key holding the wrong kind of value");
    pub const TOO_LONG: Error =
        Error::fixed("ERR string exceeds maximum allowed size (proto-max-bulk-len)");

    pub const fn fixed(text: &'static str) -> Error {
        Error(Cow::Borrowed(text.as_bytes()))
    }

    pub fn new(text: String) -> Error {
        Error::from_bytes(text.into_bytes())
    }

    /// An error that quotes what a client sent, which may be any bytes.
    pub fn from_bytes(text: Vec<u8>) -> Error {
        Error(Cow::Owned(text))
    }

    /// `before`, then a client's word as Redis quotes it, then `after`.
    pub fn quoting(before: &str, word: &[u8], after: &str) -> Error {
        Error::from_bytes([before.as_bytes(), quoted(word), after.as_bytes()].concat())
    }

    pub fn wrong_arity(command: &str) -> Error {
        Error::new(format!("ERR wrong number of arguments for '{command}' command"))
    }

    /// The whole reply without its leading `-` and its line end.
    pub fn text(&self) -> &[u8] {
        &self.0
    }
}

/// A client's word as far as Redis prints it, which takes it for a C string: up to a zero byte.
pub fn quoted(word: &[u8]) -> &[u8] {
    word.split(|byte| *byte == 0).next().unwrap_or_default()
}
