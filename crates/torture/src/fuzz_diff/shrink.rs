//! From a long sequence that shows a difference to a short one: delta debugging.

use anyhow::Result;

use super::pair::{Difference, Launches, Pair, Step};

/// Runs that shrinking may take.
const RUNS_MAX: usize = 600;

/// The shortest failing sequence found, and what differs in it.
pub fn shrink(
    launches: &Launches,
    mut steps: Vec<Step>,
    first: Difference,
) -> Result<(Vec<Step>, Difference)> {
    steps.truncate(first.step + 1);
    let mut replayer = Replayer { launches, pair: None, runs: 0, command: command_of(&first) };
    let Some(mut found) = replayer.run(&steps)? else {
        println!("the difference does not show when the sequence is replayed");
        return Ok((steps, first));
    };
    let mut part = steps.len().div_ceil(2);
    while part > 0 && replayer.runs < RUNS_MAX {
        let mut start = 0;
        let mut is_shorter = false;
        while start < steps.len() && replayer.runs < RUNS_MAX {
            let end = (start + part).min(steps.len());
            let rest = [&steps[..start], &steps[end..]].concat();
            match replayer.run(&rest)? {
                Some(difference) => {
                    steps = rest;
                    steps.truncate(difference.step + 1);
                    found = difference;
                    is_shorter = true;
                }
                None => start = end,
            }
        }
        if part == 1 && !is_shorter {
            break;
        }
        part = if part == 1 { 1 } else { part.div_ceil(2) };
    }
    Ok((steps, found))
}

/// Runs sequences on empty servers, which are started anew only after a failure.
struct Replayer<'a> {
    launches: &'a Launches,
    pair: Option<Pair>,
    runs: usize,
    /// Another command's difference is another one: that of a transaction, say, whose end was left
    /// out.
    command: String,
}

fn command_of(difference: &Difference) -> String {
    let word = difference.call.split_whitespace().next();
    word.unwrap_or_default().to_ascii_lowercase()
}

impl Replayer<'_> {
    fn run(&mut self, steps: &[Step]) -> Result<Option<Difference>> {
        self.runs += 1;
        let mut pair = match self.pair.take() {
            Some(mut pair) => {
                pair.renew()?;
                pair
            }
            None => Pair::start(self.launches)?,
        };
        let found = match pair.run(steps)? {
            None => pair.compare_contents(steps.len())?,
            found => found,
        };
        if found.is_none() {
            self.pair = Some(pair);
        }
        Ok(found.filter(|difference| command_of(difference) == self.command))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_difference_is_known_by_its_command() {
        let of = |call: &str| {
            let call = call.to_owned();
            command_of(&Difference { step: 0, call, ours: String::new(), theirs: String::new() })
        };
        assert_eq!(of("hScan h 0"), of("HSCAN other"));
        assert_ne!(of("WATCH k"), of("~script eval watch"));
    }
}
