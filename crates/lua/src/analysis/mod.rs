//! Which keys a script can touch, told from its source.
//!
//! A script that provably touches only keys it was given in KEYS can run while only their slots
//! are locked; any other one needs the whole keyspace. The proof is deliberately simple. The source
//! is parsed as Lua parses it, and of each expression only its kind is kept: `KEYS[...]`, a name, a
//! literal, `redis.call`, anything else. At the end, every call of a command must name its command
//! by a literal and take each of its keys from `KEYS[...]`, or from a name to which nothing else is
//! ever assigned in the whole source. Scopes are ignored: two variables of one name are one, which
//! can only make the answer [`Touches::Any`].
//!
//! What would be a way around gives up at once: `redis`, `redis.call` or `KEYS` used as a value,
//! `_G`, `load` and the like. A way around that is missed is a bug that corrupts data under load;
//! a script that is misjudged as `Any` is only slower.

mod calls;
mod lexer;
mod parser;
#[cfg(test)]
mod tests;

use calls::Facts;
use parser::NotUnderstood;

use crate::shebang;

/// What a script touches.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Touches {
    /// Only keys that it was given as KEYS.
    Declared,
    /// It cannot be told.
    Any,
}

/// What the source of a script tells.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Analysis {
    pub touches: Touches,
    /// It calls only commands that [`Commands::is_read_only`] accepts.
    pub reads_only: bool,
}

impl Analysis {
    const UNKNOWN: Analysis = Analysis { touches: Touches::Any, reads_only: false };
}

/// What the server knows about commands.
pub trait Commands {
    /// Where the keys of a call stand. `None` if that cannot be told from what is known, if there
    /// is no such command, or if the command touches more than these keys (KEYS, SCAN, SORT with
    /// BY, FLUSHALL).
    fn key_positions(&self, call: &Call) -> Option<KeyPositions>;

    /// Whether a command changes nothing. `call` is as for [`Commands::key_positions`].
    fn is_read_only(&self, call: &Call) -> bool;
}

/// A call of a command in the source.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Call {
    /// The arguments, the command's name first, which is always known. `None` for one that is no
    /// literal.
    pub args: Vec<Option<Vec<u8>>>,
    /// More arguments may follow, any number of them.
    pub is_open: bool,
}

/// Where the keys of a call stand; 0 is the command's name.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct KeyPositions {
    pub positions: Vec<usize>,
    /// Of an open call: keys may be among the arguments that follow.
    pub in_rest: bool,
}

/// A longer source is not judged: that would take as long as to compile it, and nobody can end it.
const JUDGED_BYTES_MAX: usize = 1024 * 1024;

/// What the source of a script tells about the keys it touches. A source that does not compile is
/// judged as well, but never runs.
pub fn analyse(body: &[u8], commands: &dyn Commands) -> Analysis {
    if body.len() > JUDGED_BYTES_MAX {
        return Analysis::UNKNOWN;
    }
    judge(parser::parse(shebang::without(body)), commands)
}

/// What functions call their table of keys, if they are to be judged at all.
const KEYS_NAMES: [&[u8]; 2] = [b"keys", b"KEYS"];

/// What the functions of a library touch, all of them together.
pub fn analyse_library(code: &[u8], commands: &dyn Commands) -> Touches {
    if code.len() > JUDGED_BYTES_MAX {
        return Touches::Any;
    }
    let code = shebang::without(code);
    let touches = |keys| judge(parser::parse_library(code, keys), commands).touches;
    let are_declared = KEYS_NAMES.iter().any(|keys| touches(keys) == Touches::Declared);
    if are_declared { Touches::Declared } else { Touches::Any }
}

fn judge(facts: Result<Facts, NotUnderstood>, commands: &dyn Commands) -> Analysis {
    facts.map_or(Analysis::UNKNOWN, |facts| calls::judge(&facts, commands))
}
