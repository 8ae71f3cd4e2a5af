//! When fields die: HEXPIRE, HPEXPIRE, HEXPIREAT, HPEXPIREAT; HTTL, HPTTL, HEXPIRETIME,
//! HPEXPIRETIME; HPERSIST.

use crate::command::{Command, Cx, Run};
use crate::commands::condition::{self, Conditions};
use crate::commands::hash::fields::{self, Call, FIELDS, FIELDS_OF_HEXPIRE, WRONG_COUNT};
use crate::commands::options::TimeUnit;
use crate::effect::Effect;
use crate::error::Error;
use crate::event::Class;
use crate::hash_update::{self, Change};
use crate::hash_value;
use crate::spec::{Argument, Flags, Group, KeyFlags, KeySpec, Spec};

pub static COMMANDS: &[&Command] = &[
    &HEXPIRE,
    &HPEXPIRE,
    &HEXPIREAT,
    &HPEXPIREAT,
    &HTTL,
    &HPTTL,
    &HEXPIRETIME,
    &HPEXPIRETIME,
    &HPERSIST,
];

/// For a field that is not there.
const NO_FIELD: i64 = -2;
/// For a field that does not expire.
const NO_EXPIRY: i64 = -1;

/// The row of the four that set an expiry.
const EXPIRES: Spec = Spec {
    since: "9.0.0",
    group: Group::Hash,
    complexity: "O(N) where N is the number of fields given.",
    arity: -6,
    flags: Flags::WRITE.union(Flags::FAST),
    keys: &[KeySpec::first(KeyFlags::RW.union(KeyFlags::UPDATE))],
    ..Spec::BLANK
};
const CONDITION: Argument = condition::WORDS.since("9.0.0");

static HEXPIRE: Command = Command {
    spec: Spec {
        name: "hexpire",
        summary: "Lets fields of a hash live for some seconds from now.",
        arguments: &[
            Argument::key("key", 0),
            Argument::integer("seconds"),
            condition::WORDS,
            FIELDS_OF_HEXPIRE,
        ],
        ..EXPIRES
    },
    run: Run::Keys(|cx| expire(cx, TimeUnit::Seconds, "hexpire")),
};

static HPEXPIRE: Command = Command {
    spec: Spec {
        name: "hpexpire",
        summary: "Lets fields of a hash live for some milliseconds from now.",
        arguments: &[Argument::key("key", 0), Argument::integer("milliseconds"), CONDITION, FIELDS],
        ..EXPIRES
    },
    run: Run::Keys(|cx| expire(cx, TimeUnit::Milliseconds, "hpexpire")),
};

static HEXPIREAT: Command = Command {
    spec: Spec {
        name: "hexpireat",
        summary: "Lets fields of a hash live until a Unix time in seconds.",
        arguments: &[
            Argument::key("key", 0),
            Argument::integer("unix-time-seconds"),
            CONDITION,
            FIELDS,
        ],
        ..EXPIRES
    },
    run: Run::Keys(|cx| expire(cx, TimeUnit::UnixSeconds, "hexpireat")),
};

static HPEXPIREAT: Command = Command {
    spec: Spec {
        name: "hpexpireat",
        summary: "Lets fields of a hash live until a Unix time in milliseconds.",
        arguments: &[
            Argument::key("key", 0),
            Argument::integer("unix-time-milliseconds"),
            CONDITION,
            FIELDS,
        ],
        ..EXPIRES
    },
    run: Run::Keys(|cx| expire(cx, TimeUnit::UnixMilliseconds, "hpexpireat")),
};

/// Replies for each field: -2 if it is not there, 0 if the conditions forbid it, 1 if it got the
/// expiry, 2 if it was deleted since that has passed.
fn expire(cx: &mut Cx<'_, '_>, unit: TimeUnit, command: &str) -> Result<Effect, Error> {
    let call = Call::with_options(cx.args, 3)?;
    let conditions = Conditions::parse(call.options())?;
    let names = call.fields(1, WRONG_COUNT)?;
    let env = cx.view.env;
    let expiry_ms = fields::expiry_ms(&cx.args[2], unit, env, command)?;
    let deletes = env.has_passed(expiry_ms);
    let mut changed = Vec::new();
    cx.reply.array(names.len());
    hash_update::change(&mut cx.view, 0, names.iter(), |name, field| {
        let Some((_, present)) = field else {
            cx.reply.integer(NO_FIELD);
            return Change::None;
        };
        if !conditions.allow(present, expiry_ms as i64) {
            cx.reply.integer(0);
            return Change::None;
        }
        changed.push(name);
        cx.reply.integer(if deletes { 2 } else { 1 });
        if deletes { Change::Delete } else { Change::Expiry(Some(expiry_ms)) }
    })?;
    if changed.is_empty() {
        return Ok(Effect::None);
    }
    fields::tell_expiry(&mut cx.view, expiry_ms);
    Ok(fields::expiry_effect(cx, expiry_ms, &changed))
}

/// The row of the four that tell the expiry.
const ASK: Spec = Spec {
    since: "9.0.0",
    group: Group::Hash,
    complexity: "O(N) where N is the number of fields given.",
    arity: -5,
    flags: Flags::READONLY.union(Flags::FAST),
    keys: &[KeySpec::first(KeyFlags::RO.union(KeyFlags::ACCESS))],
    arguments: &[Argument::key("key", 0), FIELDS],
    ..Spec::BLANK
};

static HTTL: Command = Command {
    spec: Spec {
        name: "httl",
        summary: "Returns how many seconds fields of a hash have left.",
        ..ASK
    },
    run: Run::Keys(|cx| ask(cx, TimeUnit::Seconds)),
};

static HPTTL: Command = Command {
    spec: Spec {
        name: "hpttl",
        summary: "Returns how many milliseconds fields of a hash have left.",
        ..ASK
    },
    run: Run::Keys(|cx| ask(cx, TimeUnit::Milliseconds)),
};

static HEXPIRETIME: Command = Command {
    spec: Spec {
        name: "hexpiretime",
        summary: "Returns the Unix times in seconds at which fields of a hash expire.",
        ..ASK
    },
    run: Run::Keys(|cx| ask(cx, TimeUnit::UnixSeconds)),
};

static HPEXPIRETIME: Command = Command {
    spec: Spec {
        name: "hpexpiretime",
        summary: "Returns the Unix times in milliseconds at which fields of a hash expire.",
        ..ASK
    },
    run: Run::Keys(|cx| ask(cx, TimeUnit::UnixMilliseconds)),
};

fn ask(cx: &mut Cx<'_, '_>, unit: TimeUnit) -> Result<Effect, Error> {
    let names = Call::without_options(cx.args)?.fields(1, Error::SYNTAX)?;
    let now_ms = cx.view.env.now_ms;
    let hash = hash_value::read(&mut cx.view, 0)?;
    cx.reply.array(names.len());
    for name in names {
        cx.reply.integer(match hash.and_then(|hash| hash.get_with_expiry(name)) {
            None => NO_FIELD,
            Some((_, None)) => NO_EXPIRY,
            Some((_, Some(expiry_ms))) => unit.report(expiry_ms, now_ms),
        });
    }
    Ok(Effect::None)
}

static HPERSIST: Command = Command {
    spec: Spec {
        name: "hpersist",
        summary: "Takes away the expiries of fields of a hash.",
        since: "9.0.0",
        group: Group::Hash,
        complexity: "O(N) where N is the number of fields given.",
        arity: -5,
        flags: Flags::WRITE.union(Flags::FAST),
        keys: &[KeySpec::first(KeyFlags::RW.union(KeyFlags::UPDATE))],
        arguments: &[Argument::key("key", 0), FIELDS],
        ..Spec::BLANK
    },
    run: Run::Keys(hpersist),
};

fn hpersist(cx: &mut Cx<'_, '_>) -> Result<Effect, Error> {
    let names = Call::without_options(cx.args)?.fields(1, WRONG_COUNT)?;
    let mut is_changed = false;
    cx.reply.array(names.len());
    hash_update::change(&mut cx.view, 0, names.iter(), |_, field| {
        let expires = field.map(|(_, expiry_ms)| expiry_ms.is_some());
        cx.reply.integer(match expires {
            None => NO_FIELD,
            Some(false) => NO_EXPIRY,
            Some(true) => 1,
        });
        is_changed |= expires == Some(true);
        if expires == Some(true) { Change::Expiry(None) } else { Change::None }
    })?;
    if is_changed {
        cx.view.changed(0, Class::HASH, "hpersist");
    }
    Ok(Effect::given_if(is_changed))
}

#[cfg(test)]
#[path = "expire_tests.rs"]
mod tests;
