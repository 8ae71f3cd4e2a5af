//! Decimal counters: INCRBYFLOAT.

use kvasir_structures::record::NewBody;

use crate::command::{Command, Cx, Run};
use crate::effect::{Effect, call};
use crate::error::Error;
use crate::event::Class;
use crate::item::{Item, with_notes};
use crate::long_double::{LongDouble, Parsed};
use crate::spec::{Argument, ArgumentKind, Flags, Group, KeyFlags, KeySpec, Spec};
use crate::value::Tag;

pub static COMMANDS: &[&Command] = &[&INCRBYFLOAT];

static INCRBYFLOAT: Command = Command {
    spec: Spec {
        name: "incrbyfloat",
        summary: "Adds a decimal number to the one that a key holds; a free key counts as 0.",
        since: "2.6.0",
        group: Group::String,
        complexity: "O(1)",
        arity: 3,
        flags: Flags::WRITE.union(Flags::DENYOOM).union(Flags::FAST),
        keys: &[KeySpec::first(KeyFlags::RW.union(KeyFlags::ACCESS).union(KeyFlags::UPDATE))],
        arguments: &[Argument::key("key", 0), Argument::new("increment", ArgumentKind::Double)],
        ..Spec::BLANK
    },
    run: Run::Keys(incrbyfloat),
};

fn incrbyfloat(cx: &mut Cx<'_, '_>) -> Result<Effect, Error> {
    let parse = |text: &[u8]| LongDouble::parse(text).ok_or(Error::NOT_FLOAT);
    let old = match cx.view.peek_text(0)? {
        None => Parsed::Finite(LongDouble::ZERO),
        Some(text) => parse(&text.bytes())?,
    };
    let new = match (old, parse(&cx.args[2])?) {
        (Parsed::Finite(old), Parsed::Finite(change)) => old.checked_add(change),
        _ => None,
    };
    let new = new.ok_or(Error::fixed("ERR increment would produce NaN or Infinity"))?;
    let mut text = Vec::new();
    new.write_to(&mut text);
    let mut item = Item::default();
    match cx.view.find(0) {
        Some(mut found) => {
            item = found.item();
            found.set_body(Tag::ComputedText, NewBody::Bytes(&text));
        }
        None => cx.view.put(0, Tag::ComputedText, NewBody::Bytes(&text), None),
    }
    cx.view.changed(0, Class::STRING, "incrbyfloat");
    cx.reply.bulk(&text);
    if !cx.view.env.logs {
        return Ok(Effect::Rewritten(Vec::new()));
    }
    let key = cx.view.key(0);
    let effect = Effect::Rewritten(vec![call(&[b"SET", key, &text, b"KEEPTTL"])]);
    Ok(with_notes(effect, key, item))
}

#[cfg(test)]
mod tests {
    use kvasir_resp::reply::Protocol;

    use crate::effect::{Effect, call};
    use crate::testing::events::check_events;
    use crate::testing::{Bench, check, check3, split};

    #[test]
    fn adds() {
        check(
            "INCRBYFLOAT k 10.50; INCRBYFLOAT k 0.1; INCRBYFLOAT k -5; GET k",
            "$10.5; $10.6; $5.6; $5.6",
        );
        check3("SET k 5.0e3; INCRBYFLOAT k 2.0e2", "+OK; $5200");
        check("SET k 3; INCRBYFLOAT k 4; OBJECT ENCODING k", "+OK; $7; $embstr");
        check(
            "INCRBYFLOAT k 1e44; OBJECT ENCODING k",
            "$100000000000000000001038625398088182045605888; $raw",
        );
        check(
            "SET k 0x1p3; INCRBYFLOAT k .5; INCRBYFLOAT k 5.; INCRBYFLOAT k -13.5",
            "+OK; $8.5; $13.5; $0",
        );
        check(
            "SET k 1 PXAT 33177117420000; INCRBYFLOAT k 1.5; PEXPIRETIME k",
            "+OK; $2.5; :33177117420000",
        );
    }

    #[test]
    fn refuses() {
        let invalid = "-ERR value is not a valid float";
        for text in
            ["x", "''", "' 1'", "'1 '", "1x", "nan", "1e", "0x", ".", "1e5000", "1e-5000", "--1"]
        {
            check(&format!("INCRBYFLOAT k {text}; EXISTS k"), &format!("{invalid}; :0"));
            check(&format!("SET k {text}; INCRBYFLOAT k 1"), &format!("+OK; {invalid}"));
        }
        let infinite = "-ERR increment would produce NaN or Infinity";
        check(
            "INCRBYFLOAT k inf; INCRBYFLOAT k -Infinity; SET k inf; INCRBYFLOAT k 1; INCRBYFLOAT k -inf",
            &format!("{infinite}; {infinite}; +OK; {infinite}; {infinite}"),
        );
        check("SET k 1.1e4932; INCRBYFLOAT k 1.1e4932", &format!("+OK; {infinite}"));
        check(
            "HSET h f v; INCRBYFLOAT h x; INCRBYFLOAT h",
            ":1; -WRONGTYPE Operation against a key holding the wrong kind of value; \
             -ERR wrong number of arguments for 'incrbyfloat' command",
        );
    }

    #[test]
    fn the_log_gets_the_result() {
        let mut bench = Bench::new(Protocol::Resp2);
        let (_, effect) = bench.call(split("INCRBYFLOAT k 1.50")[0].as_args());
        assert_eq!(effect, Effect::Rewritten(vec![call(&[b"SET", b"k", b"1.5", b"KEEPTTL"])]));
    }

    #[test]
    fn events_of_adding() {
        check_events(
            "INCRBYFLOAT f 1.5; INCRBYFLOAT f 0; SET k x; INCRBYFLOAT k 1",
            "new f, incrbyfloat f; incrbyfloat f; new k, set k; ",
        );
    }
}
