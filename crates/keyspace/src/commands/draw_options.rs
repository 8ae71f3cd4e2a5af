//! What SRANDMEMBER, HRANDFIELD and ZRANDMEMBER are told: how many to draw, and whether with what
//! belongs to each.

use kvasir_resp::args::Args;

use super::options::integer;
use crate::error::Error;

/// How many elements to draw.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Draws {
    /// So many, or all, none twice.
    Distinct(usize),
    /// So many, each out of all: a negative count.
    Repeated(usize),
}

impl Draws {
    pub fn parse(count: &[u8]) -> Result<Draws, Error> {
        let count = integer(count)?;
        if count == i64::MIN {
            let (min, max) = (-i64::MAX, i64::MAX);
            let text = format!("ERR value is out of range, value must between {min} and {max}");
            return Err(Error::new(text));
        }
        let size = count.unsigned_abs() as usize;
        Ok(if count < 0 { Draws::Repeated(size) } else { Draws::Distinct(size) })
    }

    /// A count, then perhaps a word that asks for pairs: whether it is there.
    pub fn parse_with(args: Args<'_>, word: &[u8]) -> Result<(Draws, bool), Error> {
        let draws = Draws::parse(&args[0])?;
        let with_pairs = match args.len() {
            1 => false,
            2 if args[1].eq_ignore_ascii_case(word) => true,
            _ => return Err(Error::SYNTAX),
        };
        let (Draws::Distinct(count) | Draws::Repeated(count)) = draws;
        if with_pairs && count > i64::MAX as usize / 2 {
            return Err(Error::fixed("ERR value is out of range"));
        }
        Ok((draws, with_pairs))
    }
}
