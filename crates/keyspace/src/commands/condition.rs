//! NX, XX, GT and LT: what the present expiry of a key or a field must be like to be replaced.

use kvasir_resp::args::Args;

use crate::error::Error;
use crate::spec::Argument;

/// The words that may stand there, together as far as they agree.
pub const WORDS: Argument = Argument::one_of(
    "condition",
    &[
        Argument::word("nx", "NX"),
        Argument::word("xx", "XX"),
        Argument::word("gt", "GT"),
        Argument::word("lt", "LT"),
    ],
)
.optional();

/// What the present expiry must be like.
#[derive(Clone, Copy, Default)]
pub struct Conditions {
    none: bool,
    some: bool,
    later: bool,
    sooner: bool,
}

impl Conditions {
    pub fn parse(words: Args<'_>) -> Result<Conditions, Error> {
        let mut given = Conditions::default();
        for word in words {
            let condition = match &word.to_ascii_lowercase()[..] {
                b"nx" => &mut given.none,
                b"xx" => &mut given.some,
                b"gt" => &mut given.later,
                b"lt" => &mut given.sooner,
                _ => return Err(Error::quoting("ERR Unsupported option ", word, "")),
            };
            *condition = true;
        }
        if given.none && (given.some || given.later || given.sooner) {
            return Err(Error::fixed(
                "ERR NX and XX, GT or LT options at the same time are not compatible",
            ));
        }
        if given.later && given.sooner {
            return Err(Error::fixed("ERR GT and LT options at the same time are not compatible"));
        }
        Ok(given)
    }

    /// Whether what has the expiry `present`, or lives for ever, may get the expiry `new`.
    pub fn allow(self, present: Option<u64>, new: i64) -> bool {
        let new = i128::from(new);
        match present.map(i128::from) {
            None => !self.some && !self.later,
            Some(present) => {
                let too_soon = self.later && new <= present;
                let too_late = self.sooner && new >= present;
                !(self.none || too_soon || too_late)
            }
        }
    }
}
