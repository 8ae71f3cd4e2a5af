//! The expiry that a call gives along with what it sets or reads: EX, PX, EXAT, PXAT, and either
//! KEEPTTL or PERSIST. SET, GETEX, MSETEX, HSETEX and HGETEX read it here.

use crate::commands::options::{TimeUnit, expiry_ms};
use crate::error::Error;
use crate::spec::{Argument, ArgumentKind};
use crate::view::Env;

/// What a call says about the expiry.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Expiration<'a> {
    #[default]
    Unsaid,
    /// The command's own word: KEEPTTL or PERSIST.
    Word,
    /// A time as it stands in the call.
    At(TimeUnit, &'a [u8]),
}

impl<'a> Expiration<'a> {
    /// Takes `word` if it is about the expiry, with the time that follows; says whether it did.
    /// `own` is the command's word beside times. What was said before may be said again.
    pub fn take(
        &mut self,
        word: &[u8],
        rest: &mut impl Iterator<Item = &'a [u8]>,
        own: &str,
    ) -> Result<bool, Error> {
        let new = if word.eq_ignore_ascii_case(own.as_bytes()) {
            Expiration::Word
        } else if let Some(unit) = TimeUnit::from_word(word) {
            Expiration::At(unit, rest.next().ok_or(Error::SYNTAX)?)
        } else {
            return Ok(false);
        };
        let goes_together = match (*self, new) {
            (Expiration::Unsaid, _) | (Expiration::Word, Expiration::Word) => true,
            (Expiration::At(before, _), Expiration::At(unit, _)) => before == unit,
            _ => false,
        };
        *self = new;
        if goes_together { Ok(true) } else { Err(Error::SYNTAX) }
    }

    /// The time that was given, which must be positive, in ms since 1970.
    pub fn expiry_ms(self, env: &Env, command: &str) -> Result<Option<u64>, Error> {
        match self {
            Expiration::At(unit, time) => expiry_ms(time, unit, env, command).map(Some),
            Expiration::Unsaid | Expiration::Word => Ok(None),
        }
    }
}

const SECONDS: Argument = Argument::integer("seconds").token("EX");
const MILLISECONDS: Argument = Argument::integer("milliseconds").token("PX");
const UNIX_SECONDS: Argument =
    Argument::new("unix-time-seconds", ArgumentKind::UnixTime).token("EXAT");
const UNIX_MILLISECONDS: Argument =
    Argument::new("unix-time-milliseconds", ArgumentKind::UnixTime).token("PXAT");

/// A time, or that the present expiry stays.
pub const TIME_OR_KEEPTTL: Argument = Argument::one_of(
    "expiration",
    &[SECONDS, MILLISECONDS, UNIX_SECONDS, UNIX_MILLISECONDS, Argument::word("keepttl", "KEEPTTL")],
)
.optional();

/// A time, or that the present expiry goes.
pub const TIME_OR_PERSIST: Argument = Argument::one_of(
    "expiration",
    &[SECONDS, MILLISECONDS, UNIX_SECONDS, UNIX_MILLISECONDS, Argument::word("persist", "PERSIST")],
)
.optional();

/// [`TIME_OR_KEEPTTL`] as SET came by it over the years.
pub const TIME_OR_KEEPTTL_OF_SET: Argument = Argument::one_of(
    "expiration",
    &[
        SECONDS.since("2.6.12"),
        MILLISECONDS.since("2.6.12"),
        UNIX_SECONDS.since("6.2.0"),
        UNIX_MILLISECONDS.since("6.2.0"),
        Argument::word("keepttl", "KEEPTTL").since("6.0.0"),
    ],
)
.optional();
