//! Counting in fields: HINCRBY, HINCRBYFLOAT.

use kvasir_resp::number::{parse_integer, write_integer};

use crate::command::{Command, Cx, Run};
use crate::commands::options::integer;
use crate::effect::{Effect, call};
use crate::error::Error;
use crate::event::Class;
use crate::hash_update::{self, FieldExpiry};
use crate::hash_value::{self, Item};
use crate::long_double::{LongDouble, Parsed};
use crate::spec::{Argument, ArgumentKind, Flags, Group, KeyFlags, KeySpec, Spec};

pub static COMMANDS: &[&Command] = &[&HINCRBY, &HINCRBYFLOAT];

/// The row of both.
const COUNTS: Spec = Spec {
    group: Group::Hash,
    arity: 4,
    flags: Flags::WRITE.union(Flags::DENYOOM).union(Flags::FAST),
    keys: &[KeySpec::first(KeyFlags::RW.union(KeyFlags::ACCESS).union(KeyFlags::UPDATE))],
    ..Spec::BLANK
};

static HINCRBY: Command = Command {
    spec: Spec {
        name: "hincrby",
        summary: "Adds an integer to a field; a field that is missing counts as 0.",
        since: "2.0.0",
        arguments: &[
            Argument::key("key", 0),
            Argument::string("field"),
            Argument::integer("increment"),
        ],
        ..COUNTS
    },
    run: Run::Keys(hincrby),
};

fn hincrby(cx: &mut Cx<'_, '_>) -> Result<Effect, Error> {
    let change = integer(&cx.args[3])?;
    let old = old_value(cx, to_integer, "ERR hash value is not an integer")?.unwrap_or(0);
    let overflow = Error::fixed("ERR increment or decrement would overflow");
    let new = old.checked_add(change).ok_or(overflow)?;
    let mut text = Vec::with_capacity(20);
    write_integer(new, &mut text);
    set_field(cx, &text)?;
    cx.view.changed(0, Class::HASH, "hincrby");
    cx.reply.integer(new);
    Ok(Effect::AsGiven)
}

fn to_integer(item: Item<'_>) -> Option<i64> {
    match item {
        Item::Int(int) => Some(int),
        item => item.with_bytes(parse_integer),
    }
}

static HINCRBYFLOAT: Command = Command {
    spec: Spec {
        name: "hincrbyfloat",
        summary: "Adds a decimal number to a field; a field that is missing counts as 0.",
        since: "2.6.0",
        arguments: &[
            Argument::key("key", 0),
            Argument::string("field"),
            Argument::new("increment", ArgumentKind::Double),
        ],
        ..COUNTS
    },
    run: Run::Keys(hincrbyfloat),
};

fn hincrbyfloat(cx: &mut Cx<'_, '_>) -> Result<Effect, Error> {
    let change = match LongDouble::parse(&cx.args[3]).ok_or(Error::NOT_FLOAT)? {
        Parsed::Finite(change) => change,
        Parsed::Infinite => return Err(Error::fixed("ERR value is NaN or Infinity")),
    };
    let infinite = Error::fixed("ERR increment would produce NaN or Infinity");
    let new = match old_value(cx, to_float, "ERR hash value is not a float")? {
        None => LongDouble::ZERO.checked_add(change),
        Some(Parsed::Finite(old)) => old.checked_add(change),
        Some(Parsed::Infinite) => None,
    };
    let mut text = Vec::new();
    new.ok_or(infinite)?.write_to(&mut text);
    set_field(cx, &text)?;
    cx.view.changed(0, Class::HASH, "hincrbyfloat");
    cx.reply.bulk(&text);
    if !cx.view.env.logs {
        return Ok(Effect::Rewritten(Vec::new()));
    }
    let (key, field) = (cx.view.key(0), &cx.args[2]);
    let hash = hash_value::peek(&mut cx.view, 0)?;
    let expires = hash.and_then(|hash| hash.get_with_expiry(field)?.1).is_some();
    Ok(Effect::Rewritten(vec![if expires {
        call(&[b"HSETEX", key, b"KEEPTTL", b"FIELDS", b"1", field, &text])
    } else {
        call(&[b"HSET", key, field, &text])
    }]))
}

fn to_float(item: Item<'_>) -> Option<Parsed> {
    match item {
        Item::Int(int) => Some(Parsed::Finite(LongDouble::from(int))),
        item => item.with_bytes(LongDouble::parse),
    }
}

/// The number in the field that the call names, if it is there.
fn old_value<N>(
    cx: &mut Cx<'_, '_>,
    to_number: fn(Item<'_>) -> Option<N>,
    error: &'static str,
) -> Result<Option<N>, Error> {
    let field = &cx.args[2];
    let value = hash_value::peek(&mut cx.view, 0)?.and_then(|hash| hash.get(field));
    value.map(|value| to_number(value).ok_or(Error::fixed(error))).transpose()
}

/// Sets the field that the call names; its expiry stays.
fn set_field(cx: &mut Cx<'_, '_>, value: &[u8]) -> Result<(), Error> {
    let pair = std::iter::once((&cx.args[2], value));
    hash_update::set(&mut cx.view, 0, pair, FieldExpiry::Keep)?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use crate::effect::{Effect, call};
    use crate::testing::events::check_events;
    use crate::testing::{Bench, check, check3, split};
    use kvasir_resp::reply::Protocol;

    #[test]
    fn hincrby() {
        check("HINCRBY h f 5; HINCRBY h f -7; HGET h f; HGETALL h", ":5; :-2; $-2; [$f $-2]");
        let not_integer = "-ERR hash value is not an integer";
        check(
            "HSET h f x g 1.5 i ' 1' j 01; HINCRBY h f 1; HINCRBY h g 1; HINCRBY h i 1; HINCRBY h j 1",
            &format!(":4; {not_integer}; {not_integer}; {not_integer}; {not_integer}"),
        );
        check(
            "HINCRBY h f x; HINCRBY h f 1.5; HINCRBY h f 9223372036854775808; EXISTS h",
            "-ERR value is not an integer or out of range; \
             -ERR value is not an integer or out of range; \
             -ERR value is not an integer or out of range; :0",
        );
        let overflow = "-ERR increment or decrement would overflow";
        check(
            "HSET h f 9223372036854775807 g -9223372036854775808; HINCRBY h f 1; HINCRBY h g -1; \
             HINCRBY h g 9223372036854775807",
            &format!(":2; {overflow}; {overflow}; :-1"),
        );
        check(
            "SET s v; HINCRBY s f 1; HINCRBY s f x; HINCRBY s f",
            "+OK; -WRONGTYPE Operation against a key holding the wrong kind of value; \
             -ERR value is not an integer or out of range; \
             -ERR wrong number of arguments for 'hincrby' command",
        );
        let long = "v".repeat(65);
        check(&format!("HSET h g {long}; HINCRBY h f 3; HINCRBY h f 4"), ":1; :3; :7");
    }

    #[test]
    fn hincrbyfloat() {
        check("HINCRBYFLOAT h f 10.5; HINCRBYFLOAT h f 0.1; HGET h f", "$10.5; $10.6; $10.6");
        check3("HINCRBYFLOAT h f 5.0e3; HINCRBYFLOAT h f 200", "$5000; $5200");
        check("HSET h f 10; HINCRBYFLOAT h f -12.5; HINCRBYFLOAT h f 2.5", ":1; $-2.5; $0");
        check(
            "HSET h f x g '1 ' i inf; HINCRBYFLOAT h f 1; HINCRBYFLOAT h g 1; HINCRBYFLOAT h i 1",
            ":3; -ERR hash value is not a float; -ERR hash value is not a float; \
             -ERR increment would produce NaN or Infinity",
        );
        check(
            "HINCRBYFLOAT h f x; HINCRBYFLOAT h f inf; HINCRBYFLOAT h f -inf; HINCRBYFLOAT h f nan; EXISTS h",
            "-ERR value is not a valid float; -ERR value is NaN or Infinity; \
             -ERR value is NaN or Infinity; -ERR value is not a valid float; :0",
        );
        check(
            "SET s v; HINCRBYFLOAT s f 1; HINCRBYFLOAT s f x; HINCRBYFLOAT s f",
            "+OK; -WRONGTYPE Operation against a key holding the wrong kind of value; \
             -ERR value is not a valid float; \
             -ERR wrong number of arguments for 'hincrbyfloat' command",
        );
    }

    #[test]
    fn a_long_result_makes_a_table() {
        check(
            "HINCRBYFLOAT h f 1e63; OBJECT ENCODING h; HINCRBYFLOAT h f 1e64; OBJECT ENCODING h",
            "$999999999999999999965225407341472151966654053379893968647487488; $listpack; \
             $10999999999999999999885088423138561149331623206450613993194127360; $hashtable",
        );
    }

    #[test]
    fn the_log_gets_the_result() {
        let mut bench = Bench::new(Protocol::Resp2);
        let (_, effect) = bench.call(split("HINCRBYFLOAT h f 1.50")[0].as_args());
        assert_eq!(effect, Effect::Rewritten(vec![call(&[b"HSET", b"h", b"f", b"1.5"])]));
    }

    #[test]
    fn events_of_counting() {
        check_events(
            "HINCRBY h a 1; HINCRBY h n 0; HINCRBYFLOAT h a 1.5; HINCRBYFLOAT h m 0; \
             HINCRBYFLOAT f a 1; HSET h a x; HINCRBY h a 1; HINCRBYFLOAT h a 1",
            "new h, hincrby h; hincrby h; hincrbyfloat h; hincrbyfloat h; new f, hincrbyfloat f; \
             hset h; ; ",
        );
    }
}
