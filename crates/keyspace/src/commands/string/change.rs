//! Changing strings in place: APPEND, SETRANGE, INCR, DECR, INCRBY, DECRBY.

use kvasir_resp::number::{parse_integer, write_integer};
use kvasir_structures::record::NewBody;

use crate::command::{Command, Cx, Run};
use crate::commands::options::integer;
use crate::effect::Effect;
use crate::error::Error;
use crate::event::Class;
use crate::item;
use crate::spec::{Argument, Flags, Group, KeyFlags, KeySpec, Spec};
use crate::text_value::{check_len, edit, find_or_create};
use crate::value::{Tag, Text};

pub static COMMANDS: &[&Command] = &[&APPEND, &SETRANGE, &INCR, &DECR, &INCRBY, &DECRBY];

static APPEND: Command = Command {
    spec: Spec {
        name: "append",
        summary: "Appends to a string, which is created if the key is free.",
        since: "2.0.0",
        group: Group::String,
        complexity: "O(1) for a short value, averaged over many calls.",
        arity: 3,
        flags: Flags::WRITE.union(Flags::DENYOOM).union(Flags::FAST),
        keys: &[KeySpec::first(KeyFlags::RW.union(KeyFlags::INSERT))],
        arguments: &[Argument::key("key", 0), Argument::string("value")],
        ..Spec::BLANK
    },
    run: Run::Keys(append),
};

fn append(cx: &mut Cx<'_, '_>) -> Result<Effect, Error> {
    let tail = &cx.args[2];
    let Some(len) = cx.view.peek_text(0)?.map(Text::len) else {
        cx.view.put_text(0, Tag::Text, tail, None);
        cx.view.changed(0, Class::STRING, "append");
        cx.reply.integer(tail.len() as i64);
        return Ok(Effect::AsGiven);
    };
    check_len(cx.view.env, len, tail.len())?;
    let mut found = cx.view.find(0).expect("it was just read");
    edit(&mut found, len + tail.len(), |bytes| bytes[len..].copy_from_slice(tail));
    cx.view.changed(0, Class::STRING, "append");
    cx.reply.integer((len + tail.len()) as i64);
    Ok(Effect::AsGiven)
}

static SETRANGE: Command = Command {
    spec: Spec {
        name: "setrange",
        summary: "Overwrites a part of a string from an offset on, and makes it longer if need be.",
        since: "2.2.0",
        group: Group::String,
        complexity: "O(1) for a short value, O(M) where M is the length of the value.",
        arity: 4,
        flags: Flags::WRITE.union(Flags::DENYOOM),
        keys: &[KeySpec::first(KeyFlags::RW.union(KeyFlags::UPDATE))],
        arguments: &[
            Argument::key("key", 0),
            Argument::integer("offset"),
            Argument::string("value"),
        ],
        ..Spec::BLANK
    },
    run: Run::Keys(setrange),
};

fn setrange(cx: &mut Cx<'_, '_>) -> Result<Effect, Error> {
    let offset = integer(&cx.args[2])?;
    if offset < 0 {
        return Err(Error::fixed("ERR offset is out of range"));
    }
    let (offset, part) = (offset as usize, &cx.args[3]);
    if part.is_empty() && cx.view.env.replays {
        item::restore(&mut cx.view, 0, offset as u64);
    }
    let old_len = cx.view.peek_text(0)?.map(Text::len);
    if part.is_empty() {
        cx.reply.integer(old_len.unwrap_or(0) as i64);
        return Ok(Effect::None);
    }
    check_len(cx.view.env, offset, part.len())?;
    let len = old_len.unwrap_or(0).max(offset + part.len());
    let mut found = find_or_create(&mut cx.view, 0, old_len.is_some());
    edit(&mut found, len, |bytes| bytes[offset..offset + part.len()].copy_from_slice(part));
    cx.view.changed(0, Class::STRING, "setrange");
    cx.reply.integer(len as i64);
    Ok(Effect::AsGiven)
}

static INCR: Command = Command {
    spec: Spec {
        name: "incr",
        summary: "Adds one to an integer; a free key counts as 0.",
        since: "1.0.0",
        group: Group::String,
        arity: 2,
        flags: Flags::WRITE.union(Flags::DENYOOM).union(Flags::FAST),
        keys: &[KeySpec::first(KeyFlags::RW.union(KeyFlags::ACCESS).union(KeyFlags::UPDATE))],
        arguments: &[Argument::key("key", 0)],
        ..Spec::BLANK
    },
    run: Run::Keys(|cx| add(cx, 1)),
};

static DECR: Command = Command {
    spec: Spec {
        name: "decr",
        summary: "Subtracts one from an integer; a free key counts as 0.",
        since: "1.0.0",
        group: Group::String,
        arity: 2,
        flags: Flags::WRITE.union(Flags::DENYOOM).union(Flags::FAST),
        keys: &[KeySpec::first(KeyFlags::RW.union(KeyFlags::ACCESS).union(KeyFlags::UPDATE))],
        arguments: &[Argument::key("key", 0)],
        ..Spec::BLANK
    },
    run: Run::Keys(|cx| add(cx, -1)),
};

static INCRBY: Command = Command {
    spec: Spec {
        name: "incrby",
        summary: "Adds to an integer; a free key counts as 0.",
        since: "1.0.0",
        group: Group::String,
        arity: 3,
        flags: Flags::WRITE.union(Flags::DENYOOM).union(Flags::FAST),
        keys: &[KeySpec::first(KeyFlags::RW.union(KeyFlags::ACCESS).union(KeyFlags::UPDATE))],
        arguments: &[Argument::key("key", 0), Argument::integer("increment")],
        ..Spec::BLANK
    },
    run: Run::Keys(|cx| {
        let change = integer(&cx.args[2])?;
        add(cx, change)
    }),
};

static DECRBY: Command = Command {
    spec: Spec {
        name: "decrby",
        summary: "Subtracts from an integer; a free key counts as 0.",
        since: "1.0.0",
        group: Group::String,
        arity: 3,
        flags: Flags::WRITE.union(Flags::DENYOOM).union(Flags::FAST),
        keys: &[KeySpec::first(KeyFlags::RW.union(KeyFlags::ACCESS).union(KeyFlags::UPDATE))],
        arguments: &[Argument::key("key", 0), Argument::integer("decrement")],
        ..Spec::BLANK
    },
    run: Run::Keys(|cx| {
        let change = integer(&cx.args[2])?.checked_neg();
        add(cx, change.ok_or(Error::fixed("ERR decrement would overflow"))?)
    }),
};

fn add(cx: &mut Cx<'_, '_>, change: i64) -> Result<Effect, Error> {
    let old = match cx.view.peek_text(0)? {
        None => None,
        Some(text) => Some(parse_integer(&text.bytes()).ok_or(Error::NOT_INTEGER)?),
    };
    let overflow = Error::fixed("ERR increment or decrement would overflow");
    let new = old.unwrap_or(0).checked_add(change).ok_or(overflow)?;
    let mut text = Vec::with_capacity(20);
    write_integer(new, &mut text);
    match cx.view.find(0) {
        Some(mut found) => found.set_body(Tag::Text, NewBody::Bytes(&text)),
        None => cx.view.put(0, Tag::Text, NewBody::Bytes(&text), None),
    }
    cx.view.changed(0, Class::STRING, "incrby");
    cx.reply.integer(new);
    Ok(Effect::AsGiven)
}

#[cfg(test)]
mod tests {
    use crate::testing::check;
    use crate::testing::events::check_events;

    #[test]
    fn append_and_setrange() {
        check("APPEND k ab; APPEND k cd; GET k; OBJECT ENCODING k", ":2; :4; $abcd; $raw");
        check("SET k v EX 100; APPEND k w; TTL k", "+OK; :2; :100");
        check("SETRANGE k 2 x; GET k; SETRANGE k 0 yy; GET k", ":3; $\\x00\\x00x; :3; $yyx");
        check(
            "SETRANGE k 5 \"\"; EXISTS k; SETRANGE k -1 x",
            ":0; :0; -ERR offset is out of range",
        );
        check(
            "SETRANGE k 536870911 xx",
            "-ERR string exceeds maximum allowed size (proto-max-bulk-len)",
        );
        check(
            "SETRANGE k 20000 x; APPEND k yz; STRLEN k; GETRANGE k 19999 -1",
            ":20001; :20003; :20003; $\\x00xyz",
        );
    }

    #[test]
    fn counters() {
        check("INCR k; INCRBY k 41; DECR k; DECRBY k 2; GET k", ":1; :42; :41; :39; $39");
        check("SET k v EX 100; INCR k", "+OK; -ERR value is not an integer or out of range");
        check("SET k 5 EX 100; INCR k; TTL k; OBJECT ENCODING k", "+OK; :6; :100; $int");
        check(
            "SET k 9223372036854775807; INCR k",
            "+OK; -ERR increment or decrement would overflow",
        );
        check("DECRBY k -9223372036854775808", "-ERR decrement would overflow");
        check(
            "INCRBY k x; SET k ' 5'; INCR k",
            "-ERR value is not an integer or out of range; +OK; -ERR value is not an integer or out of range",
        );
    }

    #[test]
    fn events_of_changes() {
        check_events(
            "APPEND k v; APPEND k w; APPEND k ''; SETRANGE k 0 ''; SETRANGE k 1 x; SETRANGE n 0 \
             ''; SETRANGE n 3 x; SET i 5; SETRANGE i 0 5",
            "new k, append k; append k; append k; ; setrange k; ; new n, setrange n; new i, set \
             i; setrange i",
        );
        check_events(
            "INCR k; INCRBY k 5; INCRBY k 0; DECR k; DECRBY k 3; SET k x; INCR k; SADD s a; INCR \
             s; APPEND s a",
            "new k, incrby k; incrby k; incrby k; incrby k; incrby k; set k; ; new s, sadd s; ; ",
        );
    }
}
