//! What a key holds, and what each call answers: simple enough to be obviously right.

use std::collections::BTreeSet;

use kvasir_harness::link::Call;
use kvasir_harness::raw::Raw;

/// A key's value. A hash is here the set of its fields.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub enum State {
    Nothing,
    Text(Vec<u8>),
    List(Vec<Vec<u8>>),
    Members(BTreeSet<Vec<u8>>),
}

/// What a call answers.
#[derive(PartialEq, Eq, Debug)]
enum Answer {
    Ok,
    Integer(i64),
    Text(Option<Vec<u8>>),
    /// In this order.
    List(Vec<Vec<u8>>),
    /// In any order.
    Members(BTreeSet<Vec<u8>>),
}

impl State {
    /// The state after a call that gave this reply; `None` if it could not give it.
    pub fn after(&self, call: &Call, reply: &Raw) -> Option<State> {
        let (answer, next) = match &call[0][..] {
            b"SPOP" => self.pop(reply)?,
            b"DEL" => (Answer::Integer(i64::from(*self != State::Nothing)), State::Nothing),
            b"GET" | b"SET" | b"SETNX" | b"GETSET" | b"GETDEL" | b"DELIFEQ" | b"INCR"
            | b"INCRBY" | b"APPEND" => self.text_call(call)?,
            b"RPUSH" | b"LPUSH" | b"LPOP" | b"RPOP" | b"LLEN" | b"LRANGE" => {
                self.list_call(call)?
            }
            _ => self.member_call(call)?,
        };
        answer.is(reply).then_some(next)
    }

    fn text_call(&self, call: &Call) -> Option<(Answer, State)> {
        let old = match self {
            State::Nothing => None,
            State::Text(text) => Some(text.clone()),
            _ => return None,
        };
        let same = || self.clone();
        let given = |at: usize| State::Text(call[at].clone());
        let is_there = i64::from(old.is_some());
        Some(match &call[0][..] {
            b"GET" => (Answer::Text(old), same()),
            b"SET" => (Answer::Ok, given(2)),
            b"SETNX" if old.is_some() => (Answer::Integer(0), same()),
            b"SETNX" => (Answer::Integer(1), given(2)),
            b"GETSET" => (Answer::Text(old), given(2)),
            b"GETDEL" => (Answer::Text(old), State::Nothing),
            b"DELIFEQ" if old.as_ref() == Some(&call[2]) => {
                (Answer::Integer(is_there), State::Nothing)
            }
            b"DELIFEQ" => (Answer::Integer(0), same()),
            b"APPEND" => {
                let new = [old.unwrap_or_default(), call[2].clone()].concat();
                (Answer::Integer(new.len() as i64), State::Text(new))
            }
            _ => {
                let by = call.get(2).map_or(Some(1), |by| number(by))?;
                let sum = number(&old.unwrap_or_else(|| b"0".to_vec()))?.checked_add(by)?;
                (Answer::Integer(sum), State::Text(sum.to_string().into_bytes()))
            }
        })
    }

    fn list_call(&self, call: &Call) -> Option<(Answer, State)> {
        let mut list = match self {
            State::Nothing => Vec::new(),
            State::List(list) => list.clone(),
            _ => return None,
        };
        let answer = match &call[0][..] {
            b"RPUSH" => {
                list.extend(call[2..].iter().cloned());
                Answer::Integer(list.len() as i64)
            }
            b"LPUSH" => {
                call[2..].iter().for_each(|element| list.insert(0, element.clone()));
                Answer::Integer(list.len() as i64)
            }
            b"LPOP" => Answer::Text((!list.is_empty()).then(|| list.remove(0))),
            b"RPOP" => Answer::Text(list.pop()),
            b"LLEN" => Answer::Integer(list.len() as i64),
            _ => Answer::List(list.clone()),
        };
        Some((answer, if list.is_empty() { State::Nothing } else { State::List(list) }))
    }

    fn members(&self) -> Option<BTreeSet<Vec<u8>>> {
        match self {
            State::Nothing => Some(BTreeSet::new()),
            State::Members(members) => Some(members.clone()),
            _ => None,
        }
    }

    /// Calls on sets, and the same on the fields of hashes.
    fn member_call(&self, call: &Call) -> Option<(Answer, State)> {
        let mut members = self.members()?;
        let answer = match &call[0][..] {
            b"SADD" | b"HSETNX" => Answer::Integer(members.insert(call[2].clone()).into()),
            b"SREM" | b"HDEL" => Answer::Integer(members.remove(&call[2]).into()),
            b"SISMEMBER" | b"HEXISTS" => Answer::Integer(members.contains(&call[2]).into()),
            b"SCARD" | b"HLEN" => Answer::Integer(members.len() as i64),
            b"SMEMBERS" | b"HKEYS" => Answer::Members(members.clone()),
            other => panic!("no model of {}", other.escape_ascii()),
        };
        Some((answer, State::of_members(members)))
    }

    /// Any member may be popped, and then it is gone.
    fn pop(&self, reply: &Raw) -> Option<(Answer, State)> {
        let mut members = self.members()?;
        let popped = reply.text().map(<[u8]>::to_vec);
        let is_possible = match &popped {
            Some(member) => members.remove(member),
            None => members.is_empty(),
        };
        is_possible.then(|| (Answer::Text(popped), State::of_members(members)))
    }

    fn of_members(members: BTreeSet<Vec<u8>>) -> State {
        if members.is_empty() { State::Nothing } else { State::Members(members) }
    }
}

impl Answer {
    fn is(&self, reply: &Raw) -> bool {
        if reply.is_error() {
            return false;
        }
        match self {
            Answer::Ok => reply.text() == Some(b"OK"),
            Answer::Integer(number) => reply.integer() == Some(*number),
            Answer::Text(text) => reply.integer().is_none() && reply.text() == text.as_deref(),
            Answer::List(list) => reply.items().iter().filter_map(Raw::text).eq(list),
            Answer::Members(members) => {
                let found = reply.items().iter().filter_map(Raw::text).map(<[u8]>::to_vec);
                reply.items().len() == members.len() && found.collect::<BTreeSet<_>>() == *members
            }
        }
    }
}

fn number(bytes: &[u8]) -> Option<i64> {
    std::str::from_utf8(bytes).ok()?.parse().ok()
}
