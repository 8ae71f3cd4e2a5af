//! `FIELDS numfields field...`, with which every call ends that is about expiries of fields; and
//! what such calls leave in the log.

use kvasir_resp::args::Args;

use crate::command::Cx;
use crate::commands::options::{TimeUnit, integer};
use crate::effect::Effect;
use crate::error::Error;
use crate::event::Class;
use crate::spec::Argument;
use crate::view::{Env, View};

/// What those refuse that change something; the others call it a syntax error.
pub const WRONG_COUNT: Error =
    Error::fixed("ERR numfields should be greater than 0 and match the provided number of fields");

/// The count as the oracle has it: said to belong to the key specification.
const COUNT: Argument = Argument { key_spec: Some(0), ..Argument::integer("numfields") };

pub const FIELDS: Argument =
    Argument::block("fields", &[COUNT, Argument::string("field").multiple()]).token("FIELDS");

pub const FIELDS_AND_VALUES: Argument = Argument::block(
    "fields",
    &[
        COUNT,
        Argument::block("data", &[Argument::string("field"), Argument::string("value")]).multiple(),
    ],
)
.token("FIELDS");

/// [`FIELDS`] as HEXPIRE has it.
pub const FIELDS_OF_HEXPIRE: Argument = Argument::block(
    "fields",
    &[Argument::integer("numfields"), Argument::string("field").multiple()],
)
.token("FIELDS");

/// A call in which the word FIELDS was found.
#[derive(Clone, Copy)]
pub struct Call<'a> {
    args: Args<'a>,
    /// Where options may begin.
    from: usize,
    /// Where FIELDS stands.
    at: usize,
}

impl<'a> Call<'a> {
    /// A call whose options, from argument `from` on, end with the first FIELDS.
    pub fn with_options(args: Args<'a>, from: usize) -> Result<Call<'a>, Error> {
        let is_fields = |at: &usize| args[*at].eq_ignore_ascii_case(b"fields");
        let at = (from..args.len() - 1).find(is_fields).ok_or(WRONG_COUNT)?;
        Ok(Call { args, from, at })
    }

    /// A call that has no options: FIELDS stands behind the key.
    pub fn without_options(args: Args<'a>) -> Result<Call<'a>, Error> {
        match args[2].eq_ignore_ascii_case(b"fields") {
            true => Ok(Call { args, from: 2, at: 2 }),
            false => Err(Error::SYNTAX),
        }
    }

    pub fn options(self) -> Args<'a> {
        self.args.first(self.at).from(self.from)
    }

    /// The names of fields, or fields and values if `width` is 2, after a look at their count.
    pub fn fields(self, width: usize, wrong_count: Error) -> Result<Args<'a>, Error> {
        let fields = self.args.from(self.at + 2);
        let count = integer(&self.args[self.at + 1])?;
        let is_right = count > 0 && count.checked_mul(width as i64) == Some(fields.len() as i64);
        if is_right { Ok(fields) } else { Err(wrong_count) }
    }
}

/// One call of an effect: these words, then FIELDS, the count, and the fields.
pub fn logged(words: &[&[u8]], width: usize, fields: &[&[u8]]) -> Vec<Vec<u8>> {
    let count = (fields.len() / width).to_string();
    let words = words.iter().copied().chain([&b"FIELDS"[..], count.as_bytes()]);
    words.chain(fields.iter().copied()).map(<[u8]>::to_vec).collect()
}

/// An effect that deletes these fields.
pub fn logged_deletion(key: &[u8], fields: &[&[u8]]) -> Vec<Vec<u8>> {
    [&b"HDEL"[..], key].iter().chain(fields).map(|word| word.to_vec()).collect()
}

/// The expiry of fields, ms since 1970, at least 1; unlike a key's it may be now.
pub fn expiry_ms(text: &[u8], unit: TimeUnit, env: &Env, command: &str) -> Result<u64, Error> {
    let ms =
        Some(integer(text)?).filter(|time| *time >= 0).and_then(|time| unit.unix_ms(time, env));
    let invalid = || Error::new(format!("ERR invalid expire time in '{command}' command"));
    ms.map(|ms| ms.max(1) as u64).ok_or_else(invalid)
}

/// Says that fields got an expiry, or died of it at once.
pub fn tell_expiry(view: &mut View<'_, '_>, expiry_ms: u64) {
    if view.env.has_passed(expiry_ms) {
        view.shrunk(0, Class::HASH, "hexpired");
    } else {
        view.changed(0, Class::HASH, "hexpire");
    }
}

/// What the log gets of an expiry that fields got, or died of at once.
pub fn expiry_effect(cx: &Cx<'_, '_>, expiry_ms: u64, fields: &[&[u8]]) -> Effect {
    let (env, key) = (cx.view.env, cx.view.key(0));
    if !env.logs {
        return Effect::Rewritten(Vec::new());
    }
    Effect::Rewritten(vec![if env.has_passed(expiry_ms) {
        logged_deletion(key, fields)
    } else {
        logged(&[b"HPEXPIREAT", key, expiry_ms.to_string().as_bytes()], 1, fields)
    }])
}
