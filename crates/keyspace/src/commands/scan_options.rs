//! The options of the commands that walk over one collection: MATCH, COUNT, and the word that
//! leaves out half of each element.

use kvasir_resp::args::Args;
use kvasir_structures::glob::{self, Case};

use super::options::integer;
use crate::error::Error;

/// Elements that a call looks at unless COUNT says otherwise.
const COUNT_DEFAULT: usize = 10;

/// What a command may leave out of its reply.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Omits {
    /// SSCAN: members come alone.
    Nothing,
    /// HSCAN: NOVALUES
    Values,
    /// ZSCAN: NOSCORES
    Scores,
}

/// What SSCAN and its like are told beside key and cursor.
pub struct ScanOptions<'a> {
    pattern: Option<&'a [u8]>,
    pub count: usize,
    /// Whether the word was given that the command knows.
    pub omits: bool,
}

impl<'a> ScanOptions<'a> {
    pub fn parse(args: Args<'a>, known: Omits) -> Result<ScanOptions<'a>, Error> {
        let mut options = ScanOptions { pattern: None, count: COUNT_DEFAULT, omits: false };
        let mut words = args.iter();
        while let Some(word) = words.next() {
            if let Some(omits) = Omits::from_word(word) {
                options.omits = true;
                if omits != known {
                    return Err(omits.misplaced());
                }
                continue;
            }
            let value = words.next().ok_or(Error::SYNTAX)?;
            if word.eq_ignore_ascii_case(b"count") {
                let count = usize::try_from(integer(value)?).map_err(|_| Error::SYNTAX)?;
                options.count = Some(count).filter(|count| *count > 0).ok_or(Error::SYNTAX)?;
            } else if word.eq_ignore_ascii_case(b"match") {
                options.pattern = Some(value).filter(|pattern| *pattern != b"*");
            } else {
                return Err(Error::SYNTAX);
            }
        }
        Ok(options)
    }

    pub fn accepts(&self, element: &[u8]) -> bool {
        self.pattern.is_none_or(|pattern| glob::matches(pattern, element, Case::Sensitive))
    }
}

impl Omits {
    fn from_word(word: &[u8]) -> Option<Omits> {
        let is = |name: &[u8]| word.eq_ignore_ascii_case(name);
        match () {
            () if is(b"novalues") => Some(Omits::Values),
            () if is(b"noscores") => Some(Omits::Scores),
            () => None,
        }
    }

    /// The error of a command that does not know the word.
    fn misplaced(self) -> Error {
        Error::fixed(match self {
            Omits::Scores => "ERR NOSCORES option can only be used in ZSCAN",
            _ => "ERR NOVALUES option can only be used in HSCAN",
        })
    }
}
