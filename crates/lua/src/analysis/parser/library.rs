//! What differs in a library: its functions get their keys as their first parameter, and what its
//! code has at the top stays from one call to the next.
//!
//! So the one name that the functions give that parameter stands for KEYS, in functions that only
//! the server calls; and nothing may keep a key, or code that names one, for a later call: a name
//! at the top is never a key, and functions make no functions.

use super::{NotUnderstood, Parser, Prefix, Result};
use crate::analysis::calls::Kind;
use crate::analysis::lexer::Token;

/// Who calls a function.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Caller {
    /// The code, or anybody.
    Any,
    /// The server alone, or so it is to be judged once all the source is known.
    Server,
}

impl Parser<'_> {
    /// Takes the first parameter of a function that the server calls, if it is the table of keys.
    pub(super) fn keys_parameter(&mut self, caller: Caller) -> Result<bool> {
        let is_keys = self.is_library && caller == Caller::Server && self.is_name(self.keys);
        if is_keys {
            self.advance()?;
        }
        Ok(is_keys)
    }

    /// The arguments of `redis.register_function`: a name and a function, or a table that has the
    /// function as `callback`.
    pub(super) fn registration(&mut self) -> Result<Prefix> {
        if self.functions > 0 {
            return Err(NotUnderstood);
        }
        if self.is("{") {
            self.named_registration()?;
        } else {
            self.expect("(")?;
            if self.is("{") {
                self.named_registration()?;
            } else {
                self.plain_expression()?;
                self.expect(",")?;
                self.callback()?;
            }
            self.expect(")")?;
        }
        Ok(Prefix::Kind(Kind::Many))
    }

    fn named_registration(&mut self) -> Result<()> {
        self.expect("{")?;
        while !self.is("}") {
            let field = self.name()?;
            self.expect("=")?;
            if field == b"callback" {
                self.callback()?;
            } else {
                self.plain_expression()?;
            }
            if !self.accept(",")? && !self.accept(";")? {
                break;
            }
        }
        self.expect("}")
    }

    /// A function, or the name of one.
    fn callback(&mut self) -> Result<()> {
        if self.accept("function")? {
            return self.function_body(false, Caller::Server).map(drop);
        }
        match self.advance()? {
            Token::Name(_) if self.is(")") || self.is(",") || self.is("}") => Ok(()),
            _ => Err(NotUnderstood),
        }
    }
}
