//! What clients did with one key and heard of it: whether each call could have happened at one
//! moment between its sending and its answer.
//!
//! No value is written twice, so each read tells which write it has seen. The calls of one value
//! (its write and all reads of it) happen in one go, since no other write can come between them.
//! Let `first` be the earliest end of any of them and `last` the latest beginning. If `first` is
//! before `last` the value stood there at least from the one to the other; else all of them may
//! have happened at one moment between `last` and `first`. So there is an order if and only if no
//! two values stood there for certain at the same time, and no value has all its moments while
//! another one stood there. (Gibbons and Korach, "Testing shared memories", 1997.)

use std::collections::BTreeMap;

/// Of a key of which nobody has written anything.
pub const NOTHING: u64 = 0;

/// What a call did.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Did {
    Write(u64),
    Read(u64),
}

/// A call; nobody knows the end of one whose answer did not come.
#[derive(Clone, Copy, Debug)]
pub struct Call {
    pub did: Did,
    pub begin_ns: u64,
    pub end_ns: u64,
}

#[derive(Clone, Copy)]
struct Zone {
    value: u64,
    first: u64,
    last: u64,
    write_begin: Option<u64>,
}

/// Fails unless some order explains the calls on one key.
pub fn check(calls: &[Call]) -> Result<(), String> {
    let mut zones: BTreeMap<u64, Zone> = BTreeMap::new();
    let never = Zone { value: NOTHING, first: 0, last: 0, write_begin: Some(0) };
    zones.insert(NOTHING, never);
    for Call { did, begin_ns, end_ns } in calls {
        let (Did::Write(value) | Did::Read(value)) = *did;
        let new = Zone { value, first: u64::MAX, last: 0, write_begin: None };
        let zone = zones.entry(value).or_insert(new);
        zone.first = zone.first.min(*end_ns);
        zone.last = zone.last.max(*begin_ns);
        if matches!(did, Did::Write(_)) {
            zone.write_begin = Some(*begin_ns);
        }
    }
    for Zone { value, first, write_begin, .. } in zones.values() {
        match write_begin {
            None => return Err(format!("{value} is read, which nobody wrote")),
            Some(begin) if first < begin => {
                return Err(format!("{value} is read before it was written"));
            }
            Some(_) => {}
        }
    }
    // A write that nobody has heard of need not have happened.
    let zones: Vec<Zone> = zones.into_values().filter(|zone| zone.first < u64::MAX).collect();
    let is_certain = |zone: &&Zone| zone.first < zone.last;
    let mut certain: Vec<&Zone> = zones.iter().filter(is_certain).collect();
    certain.sort_by_key(|zone| zone.first);
    for pair in certain.windows(2) {
        if pair[1].first < pair[0].last {
            return Err(describe(pair[0], pair[1], calls));
        }
    }
    for zone in zones.iter().filter(|zone| zone.first >= zone.last) {
        let around =
            certain.iter().find(|other| other.first < zone.last && zone.first < other.last);
        if let Some(other) = around {
            return Err(describe(other, zone, calls));
        }
    }
    Ok(())
}

fn describe(one: &Zone, other: &Zone, calls: &[Call]) -> String {
    let mut text = format!("{} stood there while {} did:", one.value, other.value);
    let mut shown: Vec<&Call> = calls
        .iter()
        .filter(|call| {
            let (Did::Write(value) | Did::Read(value)) = call.did;
            value == one.value || value == other.value
        })
        .collect();
    shown.sort_by_key(|call| call.begin_ns);
    for Call { did, begin_ns, end_ns } in shown {
        let end = if *end_ns == u64::MAX { "...".to_owned() } else { (end_ns / 1000).to_string() };
        text += &format!(" {did:?} {} to {end} us;", begin_ns / 1000);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn verdict(calls: &[(Did, u64, u64)]) -> bool {
        let call = |(did, begin_ns, end_ns): &(Did, u64, u64)| Call {
            did: *did,
            begin_ns: *begin_ns,
            end_ns: *end_ns,
        };
        check(&calls.iter().map(call).collect::<Vec<_>>()).is_ok()
    }

    #[test]
    fn what_has_an_order_is_told_from_what_has_none() {
        use Did::{Read, Write};
        let none = u64::MAX;
        assert!(verdict(&[]));
        assert!(verdict(&[(Read(0), 1, 2), (Write(1), 3, 4), (Read(1), 5, 6)]));
        // Beside each other, so in any order.
        assert!(verdict(&[(Write(1), 1, 9), (Write(2), 2, 8), (Read(1), 10, 11)]));
        assert!(verdict(&[(Write(1), 1, 9), (Read(0), 2, 3), (Read(1), 4, 5)]));
        // Not answered: it may have happened, or not.
        assert!(verdict(&[(Write(1), 1, none), (Read(0), 50, 60)]));
        assert!(verdict(&[(Write(1), 1, none), (Read(0), 50, 60), (Read(1), 70, 80)]));
        // Lost, back again, seen too early, seen in two orders, from nowhere.
        assert!(!verdict(&[(Write(1), 1, 2), (Read(0), 3, 4)]));
        assert!(!verdict(&[(Write(1), 1, 2), (Write(2), 3, 4), (Read(1), 5, 6)]));
        assert!(!verdict(&[(Write(1), 1, none), (Read(1), 3, 4), (Read(0), 5, 6)]));
        assert!(!verdict(&[(Read(1), 1, 2), (Write(1), 3, 4)]));
        assert!(!verdict(&[
            (Write(1), 1, 9),
            (Write(2), 1, 9),
            (Read(1), 10, 11),
            (Read(2), 12, 13),
            (Read(1), 14, 15)
        ]));
        assert!(!verdict(&[(Read(7), 1, 2)]));
    }
}
