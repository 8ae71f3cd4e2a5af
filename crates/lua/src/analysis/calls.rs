//! What the whole source says about names, and from that the judgement of its calls.

use std::collections::HashMap;

use super::{Analysis, Call, Commands, KeyPositions, Touches};

/// The kind of an expression.
#[derive(Clone, Debug, PartialEq)]
pub enum Kind {
    /// The bytes that a command gets for a literal string or a whole number.
    Literal(Vec<u8>),
    Nil,
    /// `KEYS[...]`.
    Key,
    /// All that `unpack(KEYS)` returns.
    Keys,
    /// `redis.call` or `redis.pcall`, not called.
    CallFunction,
    /// Anything else of `redis`, to which nothing can be assigned.
    Field,
    Name(Vec<u8>),
    /// Any number of values of which nothing is known: a call, `...`.
    Many,
    Other,
}

/// What the source says, gathered while it is parsed.
#[derive(Debug, Default)]
pub struct Facts {
    /// What is assigned to each name, anywhere.
    pub bindings: HashMap<Vec<u8>, Vec<Kind>>,
    /// Calls of commands: of `redis.call` itself.
    pub calls: Vec<Vec<Kind>>,
    /// Calls of names, which may be other names of `redis.call`.
    pub calls_by_name: Vec<(Vec<u8>, Vec<Kind>)>,
    /// Names that were used otherwise than by calling them.
    pub used: Vec<Vec<u8>>,
    /// Functions that only the server may call.
    pub callbacks: Vec<Vec<u8>>,
    /// Names of Lua's own functions that the judgement relies on; nothing may be assigned to them.
    pub relied_on: Vec<&'static str>,
}

/// A chain of names that stand for a key is followed so far.
const CHAIN_MAX: usize = 16;

pub fn judge(facts: &Facts, commands: &dyn Commands) -> Analysis {
    let is_bound = |name: &&str| facts.bindings.contains_key(name.as_bytes());
    if facts.relied_on.iter().any(is_bound) {
        return Analysis::UNKNOWN;
    }
    let is_called = |name: &Vec<u8>| {
        facts.used.contains(name) || facts.calls_by_name.iter().any(|(called, _)| called == name)
    };
    if facts.callbacks.iter().any(is_called) {
        return Analysis::UNKNOWN;
    }
    let mut calls: Vec<&[Kind]> = facts.calls.iter().map(Vec::as_slice).collect();
    for (name, args) in &facts.calls_by_name {
        if facts.is_alias(name) {
            calls.push(args);
        } else if facts.may_be_alias(name) {
            return Analysis::UNKNOWN;
        }
    }
    // Another name of `redis.call` that is passed on is called who knows where.
    if facts.used.iter().any(|name| facts.may_be_alias(name)) {
        return Analysis::UNKNOWN;
    }
    let mut analysis = Analysis { touches: Touches::Declared, reads_only: true };
    for args in calls {
        let Some(call) = call_of(args) else { return Analysis::UNKNOWN };
        analysis.reads_only &= commands.is_read_only(&call);
        let positions = commands.key_positions(&call);
        if !positions.is_some_and(|positions| facts.are_keys_declared(args, &call, &positions)) {
            analysis.touches = Touches::Any;
        }
    }
    analysis
}

/// What is known of a call's arguments; `None` if not even its command is.
fn call_of(args: &[Kind]) -> Option<Call> {
    let is_open = matches!(args.last(), Some(Kind::Many | Kind::Keys));
    let fixed = &args[..args.len() - usize::from(is_open)];
    let literal = |kind: &Kind| match kind {
        Kind::Literal(bytes) => Some(bytes.clone()),
        _ => None,
    };
    let args: Vec<_> = fixed.iter().map(literal).collect();
    matches!(args.first(), Some(Some(_))).then_some(Call { args, is_open })
}

impl Facts {
    /// A name to which only `redis.call` is assigned.
    fn is_alias(&self, name: &[u8]) -> bool {
        let is_alias = |kind: &Kind| matches!(kind, Kind::CallFunction | Kind::Nil);
        let bindings = self.bindings.get(name);
        self.may_be_alias(name) && bindings.is_some_and(|kinds| kinds.iter().all(is_alias))
    }

    fn may_be_alias(&self, name: &[u8]) -> bool {
        self.bindings.get(name).is_some_and(|kinds| kinds.contains(&Kind::CallFunction))
    }

    fn are_keys_declared(&self, args: &[Kind], call: &Call, keys: &KeyPositions) -> bool {
        let is_rest_declared = args.last() == Some(&Kind::Keys);
        if call.is_open && keys.in_rest && !is_rest_declared {
            return false;
        }
        keys.positions.iter().all(|position| {
            if *position < call.args.len() {
                self.is_key(&args[*position], CHAIN_MAX)
            } else {
                call.is_open && is_rest_declared
            }
        })
    }

    /// Whether an expression can only be a declared key, or nil, which no command accepts.
    fn is_key(&self, kind: &Kind, chain_max: usize) -> bool {
        match kind {
            Kind::Key => true,
            Kind::Name(name) if chain_max > 0 => {
                let Some(bindings) = self.bindings.get(name) else { return false };
                let is_key = |kind: &Kind| *kind == Kind::Nil || self.is_key(kind, chain_max - 1);
                bindings.iter().all(is_key)
            }
            _ => false,
        }
    }
}
