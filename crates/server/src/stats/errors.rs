//! Error replies, counted by their code: INFO errorstats.
//!
//! Each worker counts for itself. Scripts make codes of their own, any number of them, so which
//! codes are told apart is decided for all workers together, as in Valkey: once there are 128, one
//! that a script has made and that is new counts as `ERRORSTATS_OVERFLOW`.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Mutex;

use kvasir_structures::locks::lock;

/// Codes beyond this are told apart only if they are the server's own, which are few.
const CODES_MAX: usize = 128;
const OVERFLOW: &[u8] = b"ERRORSTATS_OVERFLOW";

/// A code is looked for in so many bytes of the text, and none means that it is `ERR`.
const CODE_WITHIN: usize = 31;
const NO_CODE: &[u8] = b"ERR";

/// Who has worded an error.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Author {
    Server,
    Script,
    /// A command of a script, for which it was counted already.
    Command,
}

/// What one worker has counted.
pub type ErrorCounts = Mutex<BTreeMap<Vec<u8>, u64>>;

/// The codes that are told apart.
#[derive(Default)]
pub struct ErrorCodes(Mutex<BTreeSet<Vec<u8>>>);

impl ErrorCodes {
    /// Counts an error by its text, which does not have the `-` of the reply.
    pub fn count(&self, counts: &ErrorCounts, text: &[u8], author: Author) {
        if author == Author::Command {
            return;
        }
        let code = code_of(text);
        if let Some(count) = lock(counts).get_mut(code) {
            *count += 1;
            return;
        }
        let code = if self.admits(code, author) { code } else { OVERFLOW };
        *lock(counts).entry(code.to_vec()).or_default() += 1;
    }

    fn admits(&self, code: &[u8], author: Author) -> bool {
        let mut codes = lock(&self.0);
        if author == Author::Script && codes.len() >= CODES_MAX && !codes.contains(code) {
            codes.insert(OVERFLOW.to_vec());
            return false;
        }
        codes.insert(code.to_vec());
        true
    }

    /// CONFIG RESETSTAT, which makes workers forget their counts as well.
    pub fn reset(&self) {
        lock(&self.0).clear();
    }
}

/// What stands before the first space, which line breaks are in a reply.
fn code_of(text: &[u8]) -> &[u8] {
    let end = text.iter().rposition(|byte| !matches!(byte, b'\r' | b'\n'));
    let text = &text[..end.map_or(0, |last| last + 1)];
    let head = &text[..text.len().min(CODE_WITHIN)];
    let space = head.iter().position(|byte| matches!(byte, b' ' | b'\r' | b'\n'));
    space.map_or(NO_CODE, |space| &head[..space])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_end_where_replies_show_a_space() {
        let long = format!("{} text", "x".repeat(30));
        let too_long = format!("{} text", "x".repeat(31));
        for (text, code) in [
            ("WRONGTYPE Operation", "WRONGTYPE"),
            ("Y\r\nrole:slave", "Y"),
            ("alone", "ERR"),
            ("alone\r\n", "ERR"),
            ("", "ERR"),
            (" lead", ""),
            ("tab\tx y", "tab\tx"),
            (long.as_str(), &long[..30]),
            (too_long.as_str(), "ERR"),
        ] {
            assert_eq!(code_of(text.as_bytes()), code.as_bytes(), "{text:?}");
        }
    }

    #[test]
    fn scripts_add_no_more_codes_than_there_may_be() {
        let codes = ErrorCodes::default();
        let workers = [ErrorCounts::default(), ErrorCounts::default()];
        for number in 0..300 {
            let text = format!("C{number} text");
            codes.count(&workers[number % 2], text.as_bytes(), Author::Script);
        }
        codes.count(&workers[0], b"WRONGTYPE text", Author::Server);
        codes.count(&workers[1], b"C0 text", Author::Script);
        codes.count(&workers[1], b"C299 text", Author::Script);
        let mut all = BTreeMap::new();
        for worker in &workers {
            for (code, count) in lock(worker).iter() {
                *all.entry(code.clone()).or_insert(0) += count;
            }
        }
        assert_eq!(all.len(), CODES_MAX + 2);
        assert_eq!(all[OVERFLOW], 300 - CODES_MAX as u64 + 1);
        assert_eq!((all[&b"C0"[..]], all[&b"WRONGTYPE"[..]]), (2, 1));
        codes.reset();
        assert!(codes.admits(b"C299", Author::Script));
    }
}
