//! Whether a history of calls on one key could have happened one call at a time.
//!
//! The search of Wing and Gong, with Lowe's memory of what was tried: a call may be next if no
//! other call that is still to come had returned before it was made. Taking the calls in some such
//! order, each reply has to be the one that a key alone would give. What was tried already is a
//! set of calls taken and the state they led to; the order in which they were taken does not
//! matter. It ends because each step takes one call more, and no set with its state is tried
//! twice.
//!
//! <https://www.cs.ox.ac.uk/people/gavin.lowe/LinearizabiltyTesting/paper.pdf>

use std::collections::HashSet;

use kvasir_harness::link::{Call, show};
use kvasir_harness::raw::Raw;

use super::model::State;

/// The most calls that a history may have: a set of them is one number.
pub const CALLS_MAX: usize = 128;

/// A call that has returned. Times are in ns, from any start.
#[derive(Clone, Debug)]
pub struct Operation {
    pub connection: usize,
    pub invoked_ns: u64,
    pub returned_ns: u64,
    pub call: Call,
    pub reply: Raw,
}

/// A history that no order explains, ready to print.
pub fn check(history: &[Operation]) -> Result<(), String> {
    assert!(history.len() <= CALLS_MAX, "{} calls on one key", history.len());
    let mut search = Search { history, tried: HashSet::new() };
    if search.from(0, &State::Nothing) {
        return Ok(());
    }
    let mut operations: Vec<&Operation> = history.iter().collect();
    operations.sort_by_key(|operation| operation.invoked_ns);
    let lines = operations.iter().map(|operation| {
        let Operation { connection, invoked_ns, returned_ns, call, reply } = operation;
        format!("  [{connection}] {invoked_ns} to {returned_ns} ns: {} -> {reply:?}", show(call))
    });
    Err(lines.collect::<Vec<_>>().join("\n"))
}

struct Search<'a> {
    history: &'a [Operation],
    tried: HashSet<(u128, State)>,
}

impl Search<'_> {
    /// Whether the calls that are not in the set `taken` can follow in some order.
    fn from(&mut self, taken: u128, state: &State) -> bool {
        let history = self.history;
        let rest = || (0..history.len()).filter(|index| taken & (1 << index) == 0);
        let Some(first_return_ns) = rest().map(|index| history[index].returned_ns).min() else {
            return true;
        };
        let may_be_next = |index: &usize| history[*index].invoked_ns <= first_return_ns;
        let mut candidates = rest().filter(may_be_next);
        candidates.any(|index| {
            let Operation { call, reply, .. } = &history[index];
            let Some(next) = state.after(call, reply) else { return false };
            let taken = taken | (1 << index);
            self.tried.insert((taken, next.clone())) && self.from(taken, &next)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Calls as `from to call -> reply`, one a line.
    fn history(text: &str) -> Vec<Operation> {
        let operation = |line: &str| {
            let (call, reply) = line.split_once(" -> ").expect("a reply");
            let mut words = call.split_whitespace();
            let mut time = || words.next().and_then(|word| word.parse().ok()).expect("a time");
            let (invoked_ns, returned_ns) = (time(), time());
            let call = words.map(|word| word.as_bytes().to_vec()).collect();
            let reply = Raw::parse(format!("{reply}\r\n").replace('_', "\r\n").as_bytes());
            let reply = reply.expect("a whole reply").0;
            Operation { connection: 0, invoked_ns, returned_ns, call, reply }
        };
        text.lines().map(str::trim).filter(|line| !line.is_empty()).map(operation).collect()
    }

    #[test]
    fn calls_that_overlap_may_be_in_any_order() {
        let text = "0 10 SET k a -> +OK
                    5 15 SET k b -> +OK
                    16 20 GET k -> $1_a
                    16 20 INCR c -> -ERR";
        // The key's last value is the first one's: the second came before it.
        assert!(check(&history(text)[..3]).is_ok());
        assert!(check(&history("0 9 INCR k -> :2\n 1 8 INCR k -> :1")).is_ok());
    }

    #[test]
    fn what_returned_before_came_before() {
        let stale = "0 10 SET k a -> +OK
                     11 15 SET k b -> +OK
                     16 20 GET k -> $1_a";
        assert!(check(&history(stale)).is_err());
        let lost = "0 10 INCR k -> :1\n 0 10 INCR k -> :1";
        assert!(check(&history(lost)).is_err());
        // Two readers must agree on the order of two writes.
        let torn = "0 90 SET k a -> +OK
                    0 90 SET k b -> +OK
                    10 20 GET k -> $1_a
                    30 40 GET k -> $1_b
                    50 60 GET k -> $1_a";
        assert!(check(&history(torn)).is_err());
    }

    #[test]
    fn an_element_is_popped_once() {
        let twice = "0 5 RPUSH k x -> :1
                     6 20 LPOP k -> $1_x
                     6 20 RPOP k -> $1_x";
        assert!(check(&history(twice)).is_err());
        let once = "0 5 RPUSH k x -> :1
                    6 20 LPOP k -> $1_x
                    6 20 RPOP k -> $-1";
        assert!(check(&history(once)).is_ok());
    }
}
