//! Which replies may differ, and why.
//!
//! `NORMAL` holds what no two servers answer alike: order and time. `INTENDED` holds where Kvasir
//! means to differ from the peer; each entry has to be met, or it is reported as unused.

use crate::link::{Call, show};
use crate::raw::Raw;

/// Replies that read a clock may be so far apart.
const CLOCK_TOLERANCE_MS: i64 = 5000;

/// A reason for two replies to differ.
pub struct Rule {
    pub name: &'static str,
    pub reason: &'static str,
    matches: fn(&str, &Call, &Raw, &Raw) -> bool,
}

static NORMAL: &[Rule] = &[
    Rule {
        name: "order",
        reason: "the order of a hash table is nobody's promise",
        matches: |name, _, ours, theirs| {
            let per_item = match name {
                "hgetall" => 2,
                "keys" | "hkeys" | "hvals" => 1,
                _ => return false,
            };
            ours.sorted(per_item) == theirs.sorted(per_item)
        },
    },
    Rule {
        name: "clock",
        reason: "two servers are asked at two moments",
        matches: |name, call, ours, theirs| {
            let unit_ms = match name {
                "ttl" | "expiretime" => 1000,
                "pttl" | "pexpiretime" => 1,
                "object" if call[1].eq_ignore_ascii_case(b"idletime") => 1000,
                _ => return false,
            };
            let (Some(ours), Some(theirs)) = (ours.integer(), theirs.integer()) else {
                return false;
            };
            let is_near = ours.abs_diff(theirs) <= (CLOCK_TOLERANCE_MS / unit_ms) as u64;
            ours >= 0 && theirs >= 0 && is_near
        },
    },
];

pub static INTENDED: &[Rule] = &[
    Rule {
        name: "help",
        reason: "the lines of a HELP are written by us",
        matches: |_, call, ours, theirs| {
            let is_help = call.get(1).is_some_and(|word| word.eq_ignore_ascii_case(b"help"));
            is_help && !ours.items().is_empty() && ours.items()[0] == theirs.items()[0]
        },
    },
    Rule {
        name: "idletime",
        reason: "Redis keeps one idle time for all keys with the same small integer",
        matches: |name, call, ours, theirs| {
            let is_idletime = name == "object" && call[1].eq_ignore_ascii_case(b"idletime");
            match (ours.integer(), theirs.integer()) {
                (Some(ours), Some(theirs)) => is_idletime && 0 <= ours && ours < theirs,
                _ => false,
            }
        },
    },
    Rule {
        name: "refcount",
        reason: "Kvasir does not share small integers between keys",
        matches: |name, call, ours, theirs| {
            let is_refcount = name == "object" && call[1].eq_ignore_ascii_case(b"refcount");
            is_refcount && ours.integer() == Some(1) && theirs.integer() == Some(i32::MAX.into())
        },
    },
];

/// What was met so far.
#[derive(Default)]
pub struct Tally {
    pub commands: u64,
    /// Replies that are errors: those say less about the data.
    pub errors: u64,
    normal: [u64; 8],
    intended: [u64; 32],
    /// An example of each intended difference.
    examples: Vec<(&'static str, String)>,
}

impl Tally {
    /// How often each intended difference was met.
    pub fn intended(&self) -> impl Iterator<Item = (&'static Rule, u64)> {
        INTENDED.iter().zip(self.intended)
    }

    pub fn normal(&self) -> impl Iterator<Item = (&'static Rule, u64)> {
        NORMAL.iter().zip(self.normal)
    }

    pub fn examples(&self) -> &[(&'static str, String)] {
        &self.examples
    }
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Verdict {
    Same,
    Excused,
    Different,
}

/// Compares the replies to one call.
pub fn judge(call: &Call, ours: &Raw, theirs: &Raw, tally: &mut Tally) -> Verdict {
    tally.commands += 1;
    tally.errors += u64::from(theirs.is_error());
    if ours == theirs {
        return Verdict::Same;
    }
    let name = String::from_utf8_lossy(&call[0]).to_ascii_lowercase();
    let excuses = |rule: &Rule| (rule.matches)(&name, call, ours, theirs);
    if let Some(index) = NORMAL.iter().position(excuses) {
        tally.normal[index] += 1;
        return Verdict::Excused;
    }
    let Some(index) = INTENDED.iter().position(excuses) else {
        return Verdict::Different;
    };
    if tally.intended[index] == 0 {
        let example = format!("{} -> {ours:?} instead of {theirs:?}", show(call));
        tally.examples.push((INTENDED[index].name, example));
    }
    tally.intended[index] += 1;
    Verdict::Excused
}
