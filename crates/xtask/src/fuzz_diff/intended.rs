//! Which replies may differ, and why.
//!
//! `NORMAL` holds what no two servers answer alike: order and time. `INTENDED` holds where Kvasir
//! means to differ from the peer; each entry has to be met, or it is reported as unused.

use super::link::{Call, show};
use super::raw::Raw;

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

pub static INTENDED: &[Rule] = &[];

/// What was met so far.
#[derive(Default)]
pub struct Tally {
    pub commands: u64,
    normal: [u64; 8],
    intended: [u64; 32],
    /// An example of each intended difference.
    examples: Vec<(&'static str, String)>,
}

impl Tally {
    pub fn add(&mut self, other: &Tally) {
        self.commands += other.commands;
        let sum = |to: &mut [u64], from: &[u64]| {
            to.iter_mut().zip(from).for_each(|(to, from)| *to += from);
        };
        sum(&mut self.normal, &other.normal);
        sum(&mut self.intended, &other.intended);
    }

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
