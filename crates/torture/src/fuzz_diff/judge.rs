//! Compares replies, and keeps account of what differed and why it may.

use kvasir_harness::link::{Call, show};
use kvasir_harness::raw::Raw;

use super::intended::{INTENDED, NORMAL, Rule, Terms};
use super::script;

/// What was met so far.
pub struct Tally {
    pub terms: Terms,
    pub commands: u64,
    /// Replies that are errors: those say less about the data.
    pub errors: u64,
    normal: Vec<u64>,
    intended: Vec<u64>,
    /// An example of each intended difference.
    examples: Vec<(&'static str, String)>,
}

impl Tally {
    pub fn new(terms: Terms) -> Tally {
        let (normal, intended) = (vec![0; NORMAL.len()], vec![0; INTENDED.len()]);
        Tally { terms, commands: 0, errors: 0, normal, intended, examples: Vec::new() }
    }

    /// How often each intended difference from this peer was met.
    pub fn intended(&self) -> impl Iterator<Item = (&'static Rule, u64)> {
        let rules = INTENDED.iter().zip(self.intended.iter().copied());
        rules.filter(|(rule, _)| rule.holds(self.terms))
    }

    pub fn normal(&self) -> impl Iterator<Item = (&'static Rule, u64)> {
        NORMAL.iter().zip(self.normal.iter().copied())
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
    if script::is_script(call)
        && let Some(parts) = script::parts(call, ours, theirs)
    {
        return judge_parts(&parts, tally);
    }
    excuse(call, ours, theirs, tally)
}

/// Compares the replies to calls that came in one reply: those of a transaction or a script.
pub fn judge_parts(parts: &[(Call, Raw, Raw)], tally: &mut Tally) -> Verdict {
    let mut verdicts = parts.iter().map(|(call, ours, theirs)| judge(call, ours, theirs, tally));
    let is_different = verdicts.any(|verdict| verdict == Verdict::Different);
    if is_different { Verdict::Different } else { Verdict::Excused }
}

fn excuse(call: &Call, ours: &Raw, theirs: &Raw, tally: &mut Tally) -> Verdict {
    let name = String::from_utf8_lossy(&call[0]).to_ascii_lowercase();
    let excuses = |rule: &Rule| rule.holds(tally.terms) && rule.excuses(&name, call, ours, theirs);
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
