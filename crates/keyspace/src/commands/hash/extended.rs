//! Reading and setting fields together with their expiries: HGETEX, HSETEX; and reading them for
//! the last time: HGETDEL.

use kvasir_resp::args::Args;

use crate::command::{Command, Cx, Run};
use crate::commands::expiration::{Expiration, TIME_OR_KEEPTTL, TIME_OR_PERSIST};
use crate::commands::hash::fields::{self, Call, FIELDS, FIELDS_AND_VALUES, WRONG_COUNT};
use crate::commands::hash::get::write_values;
use crate::effect::Effect;
use crate::error::Error;
use crate::event::Class;
use crate::hash_update::{self, Change, FieldExpiry};
use crate::hash_value::{self, Hash};
use crate::spec::{Argument, Flags, Group, KeyFlags, KeySpec, Spec};
use crate::view::{Env, View};

pub static COMMANDS: &[&Command] = &[&HGETEX, &HSETEX, &HGETDEL];

static HGETEX: Command = Command {
    spec: Spec {
        name: "hgetex",
        summary: "Returns the values of fields and sets or takes away their expiries.",
        since: "9.0.0",
        group: Group::Hash,
        complexity: "O(N) where N is the number of fields given.",
        arity: -5,
        flags: Flags::WRITE.union(Flags::FAST),
        keys: &[KeySpec::first(KeyFlags::RW.union(KeyFlags::ACCESS).union(KeyFlags::UPDATE))],
        arguments: &[Argument::key("key", 0), TIME_OR_PERSIST, FIELDS],
        ..Spec::BLANK
    },
    run: Run::Keys(hgetex),
};

fn hgetex(cx: &mut Cx<'_, '_>) -> Result<Effect, Error> {
    let call = Call::with_options(cx.args, 2)?;
    let mut expiration = Expiration::Unsaid;
    let mut words = call.options().iter();
    while let Some(word) = words.next() {
        if !expiration.take(word, &mut words, "PERSIST")? {
            return Err(Error::SYNTAX);
        }
    }
    let names = call.fields(1, WRONG_COUNT)?;
    if matches!(expiration, Expiration::Unsaid) {
        return write_values(cx, names);
    }
    hash_value::read(&mut cx.view, 0)?;
    let expiry_ms = expiry_ms(expiration, cx.view.env, "hgetex")?;
    get_and_change(cx, names, expiry_ms)
}

fn get_and_change(
    cx: &mut Cx<'_, '_>,
    names: Args<'_>,
    expiry_ms: Option<u64>,
) -> Result<Effect, Error> {
    let env = cx.view.env;
    let deletes = expiry_ms.is_some_and(|ms| env.has_passed(ms));
    let mut changed = Vec::new();
    cx.reply.array(names.len());
    hash_update::change(&mut cx.view, 0, names.iter(), |name, field| {
        let Some((value, present)) = field else {
            cx.reply.null();
            return Change::None;
        };
        value.write_to(cx.reply);
        if present.is_none() && expiry_ms.is_none() {
            return Change::None;
        }
        changed.push(name);
        if deletes { Change::Delete } else { Change::Expiry(expiry_ms) }
    })?;
    if changed.is_empty() {
        return Ok(Effect::None);
    }
    let Some(expiry_ms) = expiry_ms else {
        cx.view.changed(0, Class::HASH, "hpersist");
        let persist = fields::logged(&[b"HPERSIST", cx.view.key(0)], 1, &changed);
        return Ok(Effect::Rewritten(vec![persist]));
    };
    fields::tell_expiry(&mut cx.view, expiry_ms);
    Ok(fields::expiry_effect(cx, expiry_ms, &changed))
}

static HSETEX: Command = Command {
    spec: Spec {
        name: "hsetex",
        summary: "Sets fields of a hash, with an expiry or on a condition.",
        since: "9.0.0",
        group: Group::Hash,
        complexity: "O(N) where N is the number of fields given.",
        arity: -6,
        flags: Flags::WRITE.union(Flags::DENYOOM).union(Flags::FAST),
        keys: &[KeySpec::first(KeyFlags::RW.union(KeyFlags::INSERT))],
        arguments: &[
            Argument::key("key", 0),
            Argument::one_of(
                "key-condition",
                &[Argument::word("nx", "NX"), Argument::word("xx", "XX")],
            )
            .optional(),
            Argument::one_of(
                "fields-condition",
                &[Argument::word("fnx", "FNX"), Argument::word("fxx", "FXX")],
            )
            .optional(),
            TIME_OR_KEEPTTL,
            FIELDS_AND_VALUES,
        ],
        ..Spec::BLANK
    },
    run: Run::Keys(hsetex),
};

/// HSETEX's options.
#[derive(Default)]
struct Options<'a> {
    /// What the key must be: there, or free.
    key_exists: Option<bool>,
    /// What all fields must be.
    fields_exist: Option<bool>,
    expiration: Expiration<'a>,
}

impl<'a> Options<'a> {
    fn parse(words: Args<'a>) -> Result<Options<'a>, Error> {
        let mut options = Options::default();
        let mut words = words.iter();
        while let Some(word) = words.next() {
            let (condition, exists) = match &word.to_ascii_lowercase()[..] {
                b"nx" => (&mut options.key_exists, false),
                b"xx" => (&mut options.key_exists, true),
                b"fnx" => (&mut options.fields_exist, false),
                b"fxx" => (&mut options.fields_exist, true),
                _ if options.expiration.take(word, &mut words, "KEEPTTL")? => continue,
                _ => return Err(Error::SYNTAX),
            };
            if condition.is_some_and(|other| other != exists) {
                return Err(Error::SYNTAX);
            }
            *condition = Some(exists);
        }
        Ok(options)
    }

    fn allows_key(&self, hash: Option<Hash<'_>>) -> bool {
        self.key_exists.is_none_or(|exists| exists == hash.is_some())
    }

    fn allows_fields(&self, hash: Option<Hash<'_>>, pairs: Args<'_>) -> bool {
        let has = |name: &[u8]| hash.is_some_and(|hash| hash.get(name).is_some());
        self.fields_exist.is_none_or(|exist| pairs.iter().step_by(2).all(|name| has(name) == exist))
    }
}

fn hsetex(cx: &mut Cx<'_, '_>) -> Result<Effect, Error> {
    let call = Call::with_options(cx.args, 2)?;
    let options = Options::parse(call.options())?;
    let pairs = call.fields(2, WRONG_COUNT)?;
    let env = cx.view.env;
    let hash = hash_value::peek(&mut cx.view, 0)?;
    if !options.allows_key(hash) {
        cx.reply.integer(0);
        return Ok(Effect::None);
    }
    let expiry_ms = expiry_ms(options.expiration, env, "hsetex")?;
    if !options.allows_fields(hash, pairs) {
        cx.reply.integer(0);
        return Ok(Effect::None);
    }
    cx.reply.integer(1);
    match (options.expiration, expiry_ms) {
        (_, Some(expiry_ms)) => set_with_expiry(cx, pairs, expiry_ms),
        (Expiration::Word, None) => {
            set(cx, pairs, FieldExpiry::Keep)?;
            Ok(logged(cx, &options, &[b"KEEPTTL"], pairs))
        }
        (_, None) => {
            set(cx, pairs, FieldExpiry::Clear)?;
            Ok(logged(cx, &options, &[], pairs))
        }
    }
}

/// What is logged of fields that were set. A condition on the key, which is met, is left out:
/// Redis does not know it.
fn logged(cx: &Cx<'_, '_>, options: &Options<'_>, words: &[&[u8]], pairs: Args<'_>) -> Effect {
    if options.key_exists.is_none() {
        return Effect::AsGiven;
    }
    if !cx.view.env.logs {
        return Effect::Rewritten(Vec::new());
    }
    let words = [&[&b"HSETEX"[..], cx.view.key(0)], words].concat();
    Effect::Rewritten(vec![fields::logged(&words, 2, &pairs.iter().collect::<Vec<_>>())])
}

fn set(cx: &mut Cx<'_, '_>, pairs: Args<'_>, expiry: FieldExpiry) -> Result<(), Error> {
    let pairs = pairs.iter().step_by(2).zip(pairs.from(1).iter().step_by(2));
    hash_update::set(&mut cx.view, 0, pairs, expiry)?;
    cx.view.changed(0, Class::HASH, "hset");
    Ok(())
}

/// Fields that would be dead at once are not set, but deleted.
fn set_with_expiry(cx: &mut Cx<'_, '_>, pairs: Args<'_>, expiry_ms: u64) -> Result<Effect, Error> {
    let env = cx.view.env;
    if env.has_passed(expiry_ms) {
        let names: Vec<&[u8]> = pairs.iter().step_by(2).collect();
        let was_there = cx.view.exists(0);
        let deleted = hash_update::delete(&mut cx.view, 0, names.iter().copied())?;
        tell_stillborn(&mut cx.view, was_there, deleted > 0);
        let deletion = || vec![fields::logged_deletion(cx.view.key(0), &names)];
        return Ok(if deleted > 0 { Effect::Rewritten(deletion()) } else { Effect::None });
    }
    set(cx, pairs, FieldExpiry::At(expiry_ms))?;
    cx.view.changed(0, Class::HASH, "hexpire");
    if !env.logs {
        return Ok(Effect::Rewritten(Vec::new()));
    }
    let ms = expiry_ms.to_string();
    let words = [&b"HSETEX"[..], cx.view.key(0), b"PXAT", ms.as_bytes()];
    Ok(Effect::Rewritten(vec![fields::logged(&words, 2, &pairs.iter().collect::<Vec<_>>())]))
}

/// Tells of fields that were set and died at once as Redis does, step by step; for those who watch
/// the key it has changed only if there were such fields before.
fn tell_stillborn(view: &mut View<'_, '_>, was_there: bool, is_change: bool) {
    if is_change {
        view.changed(0, Class::HASH, "hset");
        view.changed(0, Class::HASH, "hexpire");
        return view.shrunk(0, Class::HASH, "hexpired");
    }
    if !was_there {
        view.tell(0, Class::NEW, "new");
    }
    ["hset", "hexpire", "hexpired"].iter().for_each(|name| view.tell(0, Class::HASH, name));
    if !was_there {
        view.tell(0, Class::GENERIC, "del");
    }
}

fn expiry_ms(expiration: Expiration<'_>, env: &Env, command: &str) -> Result<Option<u64>, Error> {
    match expiration {
        Expiration::At(unit, time) => fields::expiry_ms(time, unit, env, command).map(Some),
        Expiration::Unsaid | Expiration::Word => Ok(None),
    }
}

static HGETDEL: Command = Command {
    spec: Spec {
        name: "hgetdel",
        summary: "Returns the values of fields and deletes them.",
        since: "9.1.0",
        group: Group::Hash,
        complexity: "O(N) where N is the number of fields given.",
        arity: -5,
        flags: Flags::WRITE.union(Flags::FAST),
        keys: &[KeySpec::first(KeyFlags::RW.union(KeyFlags::ACCESS).union(KeyFlags::DELETE))],
        arguments: &[Argument::key("key", 0), FIELDS],
        ..Spec::BLANK
    },
    run: Run::Keys(hgetdel),
};

fn hgetdel(cx: &mut Cx<'_, '_>) -> Result<Effect, Error> {
    let names = Call::without_options(cx.args)?.fields(1, WRONG_COUNT)?;
    let mut is_changed = false;
    cx.reply.array(names.len());
    hash_update::change(&mut cx.view, 0, names.iter(), |_, field| match field {
        None => {
            cx.reply.null();
            Change::None
        }
        Some((value, _)) => {
            value.write_to(cx.reply);
            is_changed = true;
            Change::Delete
        }
    })?;
    if is_changed {
        cx.view.shrunk(0, Class::HASH, "hdel");
    }
    Ok(Effect::given_if(is_changed))
}

#[cfg(test)]
#[path = "extended_tests.rs"]
mod tests;
