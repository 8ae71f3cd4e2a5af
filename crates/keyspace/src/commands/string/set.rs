//! Setting strings: SET, SETNX, SETEX, PSETEX, GETSET, MSET, MSETNX.

use crate::command::{Command, Cx, Run};
use crate::commands::options::{TimeUnit, expiry_ms};
use crate::effect::{Effect, call};
use crate::error::Error;
use crate::spec::{Argument, ArgumentKind, Flags, Group, KeyFlags, KeySpec, Spec};
use crate::value::Tag;

pub static COMMANDS: &[&Command] = &[&SET, &SETNX, &SETEX, &PSETEX, &GETSET, &MSET, &MSETNX];

/// Keys and their values.
const PAIRS: &[Argument] =
    &[Argument::block("key_value", &[Argument::key("key", 0), Argument::string("value")])
        .multiple()];

static SET: Command = Command {
    spec: Spec {
        name: "set",
        summary: "Sets a key to a string, whatever it held before.",
        since: "1.0.0",
        group: Group::String,
        arity: -3,
        flags: Flags::WRITE.union(Flags::DENYOOM),
        keys: &[KeySpec {
            notes: Some("`GET` makes it a read as well."),
            ..KeySpec::first(
                KeyFlags::RW
                    .union(KeyFlags::ACCESS)
                    .union(KeyFlags::UPDATE)
                    .union(KeyFlags::VARIABLE_FLAGS),
            )
        }],
        history: &[
            ("2.6.12", "Takes `EX`, `PX`, `NX` and `XX`."),
            ("6.0.0", "Takes `KEEPTTL`."),
            ("6.2.0", "Takes `GET`, `EXAT` and `PXAT`."),
            ("7.0.0", "`NX` and `GET` go together."),
        ],
        arguments: &[
            Argument::key("key", 0),
            Argument::string("value"),
            Argument::one_of(
                "condition",
                &[Argument::word("nx", "NX"), Argument::word("xx", "XX")],
            )
            .since("2.6.12")
            .optional(),
            Argument::word("get", "GET").since("6.2.0").optional(),
            Argument::one_of(
                "expiration",
                &[
                    Argument::integer("seconds").token("EX").since("2.6.12"),
                    Argument::integer("milliseconds").token("PX").since("2.6.12"),
                    Argument::new("unix-time-seconds", ArgumentKind::UnixTime)
                        .token("EXAT")
                        .since("6.2.0"),
                    Argument::new("unix-time-milliseconds", ArgumentKind::UnixTime)
                        .token("PXAT")
                        .since("6.2.0"),
                    Argument::word("keepttl", "KEEPTTL").since("6.0.0"),
                ],
            )
            .optional(),
        ],
        ..Spec::BLANK
    },
    run: Run::Keys(set),
};

/// SET's options.
#[derive(Default)]
struct Options<'a> {
    only_if: Option<Condition>,
    get: bool,
    keep_ttl: bool,
    expiry: Option<(TimeUnit, &'a [u8])>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Condition {
    Missing,
    Exists,
}

impl<'a> Options<'a> {
    fn parse(cx: &Cx<'a>) -> Result<Options<'a>, Error> {
        let mut options = Options::default();
        let mut words = cx.args.from(3).iter();
        while let Some(word) = words.next() {
            let condition = if word.eq_ignore_ascii_case(b"nx") {
                Some(Condition::Missing)
            } else if word.eq_ignore_ascii_case(b"xx") {
                Some(Condition::Exists)
            } else {
                None
            };
            if let Some(condition) = condition {
                if options.only_if.is_some_and(|other| other != condition) {
                    return Err(Error::SYNTAX);
                }
                options.only_if = Some(condition);
            } else if word.eq_ignore_ascii_case(b"get") {
                options.get = true;
            } else if word.eq_ignore_ascii_case(b"keepttl") && options.expiry.is_none() {
                options.keep_ttl = true;
            } else {
                let unit = TimeUnit::from_word(word).ok_or(Error::SYNTAX)?;
                let time = words.next().ok_or(Error::SYNTAX)?;
                if options.keep_ttl || options.expiry.is_some_and(|(other, _)| other != unit) {
                    return Err(Error::SYNTAX);
                }
                options.expiry = Some((unit, time));
            }
        }
        Ok(options)
    }
}

fn set(cx: &mut Cx<'_>) -> Result<Effect, Error> {
    if cx.args.len() == 3 {
        cx.view.put_text(0, Tag::Text, &cx.args[2], None);
        cx.reply.ok();
        return Ok(Effect::AsGiven);
    }
    let options = Options::parse(cx)?;
    let mut expiry = match options.expiry {
        Some((unit, time)) => Some(expiry_ms(time, unit, cx.view.env, "set")?),
        None => None,
    };
    if options.get {
        match cx.view.text(0)? {
            Some(text) => text.write_to(cx.reply),
            None => cx.reply.null(),
        }
    }
    let wanted = match options.only_if {
        None => true,
        Some(Condition::Missing) => !cx.view.exists(0),
        Some(Condition::Exists) => cx.view.exists(0),
    };
    if !wanted {
        if !options.get {
            cx.reply.null();
        }
        return Ok(Effect::None);
    }
    if options.keep_ttl {
        expiry = cx.view.peek(0).and_then(|record| record.expiry_ms());
    }
    cx.view.put_text(0, Tag::Text, &cx.args[2], expiry);
    if !options.get {
        cx.reply.ok();
    }
    Ok(match options.expiry {
        Some(_) => with_expiry(cx, &cx.args[2], expiry.unwrap_or_default()),
        None => Effect::AsGiven,
    })
}

/// The effect of a SET with an expiry: the same with an absolute time.
fn with_expiry(cx: &Cx<'_>, value: &[u8], expiry_ms: u64) -> Effect {
    if !cx.view.env.logs {
        return Effect::Rewritten(Vec::new());
    }
    let ms = expiry_ms.to_string();
    Effect::Rewritten(vec![call(&[b"SET", cx.view.key(0), value, b"PXAT", ms.as_bytes()])])
}

static SETNX: Command = Command {
    spec: Spec {
        name: "setnx",
        summary: "Sets a key to a string if it is free.",
        since: "1.0.0",
        group: Group::String,
        arity: 3,
        flags: Flags::WRITE.union(Flags::DENYOOM).union(Flags::FAST),
        keys: &[KeySpec::first(KeyFlags::OW.union(KeyFlags::INSERT))],
        arguments: &[Argument::key("key", 0), Argument::string("value")],
        ..Spec::BLANK
    },
    run: Run::Keys(setnx),
};

fn setnx(cx: &mut Cx<'_>) -> Result<Effect, Error> {
    let free = !cx.view.exists(0);
    if free {
        cx.view.put_text(0, Tag::Text, &cx.args[2], None);
    }
    cx.reply.integer(i64::from(free));
    Ok(Effect::given_if(free))
}

static SETEX: Command = Command {
    spec: Spec {
        name: "setex",
        summary: "Sets a key to a string that lives for some seconds.",
        since: "2.0.0",
        group: Group::String,
        arity: 4,
        flags: Flags::WRITE.union(Flags::DENYOOM),
        keys: &[KeySpec::first(KeyFlags::OW.union(KeyFlags::UPDATE))],
        arguments: &[
            Argument::key("key", 0),
            Argument::integer("seconds"),
            Argument::string("value"),
        ],
        ..Spec::BLANK
    },
    run: Run::Keys(|cx| set_expiring(cx, TimeUnit::Seconds, "setex")),
};

static PSETEX: Command = Command {
    spec: Spec {
        name: "psetex",
        summary: "Sets a key to a string that lives for some milliseconds.",
        since: "2.6.0",
        group: Group::String,
        arity: 4,
        flags: Flags::WRITE.union(Flags::DENYOOM),
        keys: &[KeySpec::first(KeyFlags::OW.union(KeyFlags::UPDATE))],
        arguments: &[
            Argument::key("key", 0),
            Argument::integer("milliseconds"),
            Argument::string("value"),
        ],
        ..Spec::BLANK
    },
    run: Run::Keys(|cx| set_expiring(cx, TimeUnit::Milliseconds, "psetex")),
};

fn set_expiring(cx: &mut Cx<'_>, unit: TimeUnit, command: &str) -> Result<Effect, Error> {
    let expiry = expiry_ms(&cx.args[2], unit, cx.view.env, command)?;
    cx.view.put_text(0, Tag::Text, &cx.args[3], Some(expiry));
    cx.reply.ok();
    Ok(with_expiry(cx, &cx.args[3], expiry))
}

static GETSET: Command = Command {
    spec: Spec {
        name: "getset",
        summary: "Sets a key to a string and returns the one before.",
        since: "1.0.0",
        group: Group::String,
        arity: 3,
        flags: Flags::WRITE.union(Flags::DENYOOM).union(Flags::FAST),
        keys: &[KeySpec::first(KeyFlags::RW.union(KeyFlags::ACCESS).union(KeyFlags::UPDATE))],
        deprecated: Some(("6.2.0", "`SET` with `GET`")),
        arguments: &[Argument::key("key", 0), Argument::string("value")],
        ..Spec::BLANK
    },
    run: Run::Keys(getset),
};

fn getset(cx: &mut Cx<'_>) -> Result<Effect, Error> {
    match cx.view.text(0)? {
        Some(text) => text.write_to(cx.reply),
        None => cx.reply.null(),
    }
    cx.view.put_text(0, Tag::Text, &cx.args[2], None);
    Ok(Effect::Rewritten(vec![call(&[b"SET", cx.view.key(0), &cx.args[2]])]))
}

static MSET: Command = Command {
    spec: Spec {
        name: "mset",
        summary: "Sets several keys to strings in one moment.",
        since: "1.0.1",
        group: Group::String,
        complexity: "O(N) where N is the number of keys.",
        arity: -3,
        flags: Flags::WRITE.union(Flags::DENYOOM),
        keys: &[KeySpec::range(KeyFlags::OW.union(KeyFlags::UPDATE), 1, -1, 2)],
        tips: &["request_policy:multi_shard", "response_policy:all_succeeded"],
        arguments: PAIRS,
        ..Spec::BLANK
    },
    run: Run::Keys(mset),
};

fn mset(cx: &mut Cx<'_>) -> Result<Effect, Error> {
    check_pairs(cx, "mset")?;
    set_all(cx);
    cx.reply.ok();
    Ok(Effect::AsGiven)
}

static MSETNX: Command = Command {
    spec: Spec {
        name: "msetnx",
        summary: "Sets several keys to strings in one moment, if all of them are free.",
        since: "1.0.1",
        group: Group::String,
        complexity: "O(N) where N is the number of keys.",
        arity: -3,
        flags: Flags::WRITE.union(Flags::DENYOOM),
        keys: &[KeySpec::range(KeyFlags::OW.union(KeyFlags::INSERT), 1, -1, 2)],
        tips: &["request_policy:multi_shard", "response_policy:agg_min"],
        arguments: PAIRS,
        ..Spec::BLANK
    },
    run: Run::Keys(msetnx),
};

fn msetnx(cx: &mut Cx<'_>) -> Result<Effect, Error> {
    check_pairs(cx, "msetnx")?;
    let free = (0..cx.view.key_count()).all(|key| !cx.view.exists(key));
    if free {
        set_all(cx);
    }
    cx.reply.integer(i64::from(free));
    Ok(Effect::given_if(free))
}

fn check_pairs(cx: &Cx<'_>, command: &str) -> Result<(), Error> {
    if cx.args.len().is_multiple_of(2) { Err(Error::wrong_arity(command)) } else { Ok(()) }
}

fn set_all(cx: &mut Cx<'_>) {
    for key in 0..cx.view.key_count() {
        cx.view.put_text(key, Tag::Text, &cx.args[2 * key + 2], None);
    }
}

#[cfg(test)]
mod tests {
    use crate::testing::check;

    #[test]
    fn set_with_every_option() {
        check(
            "SET k a; SET k b NX; GET k; SET none x XX; SET k c XX; GET k",
            "+OK; _; $a; _; +OK; $c",
        );
        check("SET k a GET; SET k b GET; SET k c NX GET; GET k", "_; $a; $b; $b");
        check(
            "SET k a EX 100; TTL k; SET k b KEEPTTL; TTL k; SET k c; TTL k",
            "+OK; :100; +OK; :100; +OK; :-1",
        );
        check(
            "SET k a PX 100000; TTL k; SET k a EXAT 33177117420; EXPIRETIME k",
            "+OK; :100; +OK; :33177117420",
        );
        check(
            "SET k a PXAT 33177117420000; PEXPIRETIME k; SET k a pxat 1; GET k",
            "+OK; :33177117420000; +OK; _",
        );
        check(
            "HSET h f v; SET h x GET; SET h x; GET h",
            ":1; -WRONGTYPE Operation against a key holding the wrong kind of value; +OK; $x",
        );
    }

    #[test]
    fn set_refuses() {
        let syntax = "-ERR syntax error";
        for call in [
            "SET k v NX XX",
            "SET k v EX 1 PX 1",
            "SET k v KEEPTTL EX 1",
            "SET k v EX",
            "SET k v FOO",
            "SET k v EX 1 KEEPTTL",
        ] {
            check(call, syntax);
        }
        check(
            "SET k v EX 0; SET k v EX x",
            "-ERR invalid expire time in 'set' command; -ERR value is not an integer or out of range",
        );
        check(
            "SETEX k 0 v; PSETEX k -1 v",
            "-ERR invalid expire time in 'setex' command; -ERR invalid expire time in 'psetex' command",
        );
    }

    #[test]
    fn many_at_once() {
        check("MSET a 1 b 2 a 3; MGET a b", "+OK; [$3 $2]");
        check("MSETNX a 1 b 2; MSETNX b 3 c 4; MGET a b c", ":1; :0; [$1 $2 _]");
        check("MSET a 1 b", "-ERR wrong number of arguments for 'mset' command");
        check("SETNX k a; SETNX k b; GETSET k c; GET k", ":1; :0; $a; $c");
        check("SETEX k 100 v; TTL k; PSETEX k 100000 w; TTL k; GET k", "+OK; :100; +OK; :100; $w");
    }
}
