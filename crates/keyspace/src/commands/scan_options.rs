//! The options of the commands that walk over one collection: MATCH and COUNT.

use kvasir_resp::args::Args;
use kvasir_structures::glob::{self, Case};

use super::options::integer;
use crate::error::Error;

/// Elements that a call looks at unless COUNT says otherwise.
const COUNT_DEFAULT: usize = 10;

/// What SSCAN and its like are told beside key and cursor.
pub struct ScanOptions<'a> {
    pattern: Option<&'a [u8]>,
    pub count: usize,
}

impl<'a> ScanOptions<'a> {
    pub fn parse(args: Args<'a>) -> Result<ScanOptions<'a>, Error> {
        let mut options = ScanOptions { pattern: None, count: COUNT_DEFAULT };
        let mut words = args.iter();
        while let Some(word) = words.next() {
            if word.eq_ignore_ascii_case(b"novalues") {
                return Err(Error::fixed("ERR NOVALUES option can only be used in HSCAN"));
            }
            let value = words.next().ok_or(Error::SYNTAX)?;
            if word.eq_ignore_ascii_case(b"count") {
                let count = integer(value)?;
                options.count = usize::try_from(count).map_err(|_| Error::SYNTAX)?;
                if count == 0 {
                    return Err(Error::SYNTAX);
                }
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
