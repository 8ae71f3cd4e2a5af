//! Setting one string: SET, SETNX, SETEX, PSETEX, GETSET.

use crate::command::{Command, Cx, Run};
use crate::commands::expiration::{Expiration, TIME_OR_KEEPTTL_OF_SET};
use crate::commands::options::{TimeUnit, expiry_ms};
use crate::effect::{Effect, call};
use crate::error::Error;
use crate::event::Class;
use crate::spec::{Argument, Flags, Group, KeyFlags, KeySpec, Spec};
use crate::value::Tag;
use crate::view::View;

pub static COMMANDS: &[&Command] = &[&SET, &SETNX, &SETEX, &PSETEX, &GETSET];

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
            ("8.1.0", "Takes `IFEQ`."),
        ],
        arguments: &[
            Argument::key("key", 0),
            Argument::string("value"),
            Argument::one_of(
                "condition",
                &[
                    Argument::word("nx", "NX").since("2.6.12"),
                    Argument::word("xx", "XX").since("2.6.12"),
                    Argument::string("comparison-value").token("IFEQ").since("8.1.0"),
                ],
            )
            .optional(),
            Argument::word("get", "GET").since("6.2.0").optional(),
            TIME_OR_KEEPTTL_OF_SET,
        ],
        ..Spec::BLANK
    },
    run: Run::Keys(set),
};

/// SET's options.
#[derive(Default)]
struct Options<'a> {
    only_if: Option<Condition<'a>>,
    get: bool,
    expiration: Expiration<'a>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Condition<'a> {
    Missing,
    Exists,
    Holds(&'a [u8]),
}

impl<'a> Options<'a> {
    fn parse(cx: &Cx<'a, '_>) -> Result<Options<'a>, Error> {
        let mut options = Options::default();
        let mut words = cx.args.from(3).iter();
        while let Some(word) = words.next() {
            if word.eq_ignore_ascii_case(b"nx") {
                options.set_condition(Condition::Missing)?;
            } else if word.eq_ignore_ascii_case(b"xx") {
                options.set_condition(Condition::Exists)?;
            } else if word.eq_ignore_ascii_case(b"ifeq") && options.only_if.is_none() {
                options.set_condition(Condition::Holds(words.next().ok_or(Error::SYNTAX)?))?;
            } else if word.eq_ignore_ascii_case(b"get") {
                options.get = true;
            } else if !options.expiration.take(word, &mut words, "KEEPTTL")? {
                return Err(Error::SYNTAX);
            }
        }
        Ok(options)
    }

    fn set_condition(&mut self, condition: Condition<'a>) -> Result<(), Error> {
        if self.only_if.is_some_and(|other| other != condition) {
            return Err(Error::SYNTAX);
        }
        self.only_if = Some(condition);
        Ok(())
    }
}

fn set(cx: &mut Cx<'_, '_>) -> Result<Effect, Error> {
    if cx.args.len() == 3 {
        cx.view.put_text(0, Tag::Text, &cx.args[2], None);
        cx.view.changed(0, Class::STRING, "set");
        cx.reply.ok();
        return Ok(Effect::AsGiven);
    }
    let options = Options::parse(cx)?;
    let new_expiry = options.expiration.expiry_ms(cx.view.env, "set")?;
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
        Some(Condition::Holds(value)) => {
            cx.view.peek_text(0)?.is_some_and(|text| text.equals(value))
        }
    };
    if !wanted {
        if !options.get {
            cx.reply.null();
        }
        return Ok(Effect::None);
    }
    let expiry = match options.expiration {
        Expiration::Word => cx.view.peek(0).and_then(|record| record.expiry_ms()),
        Expiration::Unsaid | Expiration::At(..) => None,
    };
    if !options.get {
        cx.reply.ok();
    }
    let Some(expiry_ms) = new_expiry else {
        cx.view.put_text(0, Tag::Text, &cx.args[2], expiry);
        cx.view.changed(0, Class::STRING, "set");
        return Ok(logged(cx, &options));
    };
    if cx.view.env.has_passed(expiry_ms) {
        let was_there = cx.view.expire(0);
        let deletion = Effect::Rewritten(vec![call(&[b"DEL", cx.view.key(0)])]);
        return Ok(if was_there { deletion } else { Effect::None });
    }
    put_expiring(&mut cx.view, &cx.args[2], expiry_ms);
    Ok(with_expiry(cx, &cx.args[2], expiry_ms))
}

/// The effect of a SET without a new expiry. IFEQ, which is met, is left out, since Redis does not
/// know it.
fn logged(cx: &Cx<'_, '_>, options: &Options<'_>) -> Effect {
    if !matches!(options.only_if, Some(Condition::Holds(_))) {
        return Effect::AsGiven;
    }
    if !cx.view.env.logs {
        return Effect::Rewritten(Vec::new());
    }
    let mut words = vec![&b"SET"[..], cx.view.key(0), &cx.args[2]];
    if matches!(options.expiration, Expiration::Word) {
        words.push(b"KEEPTTL");
    }
    Effect::Rewritten(vec![call(&words)])
}

fn put_expiring(view: &mut View<'_, '_>, value: &[u8], expiry_ms: u64) {
    view.put_text(0, Tag::Text, value, Some(expiry_ms));
    view.changed(0, Class::STRING, "set");
    view.changed(0, Class::GENERIC, "expire");
}

/// The effect of a SET with an expiry: the same with an absolute time.
fn with_expiry(cx: &Cx<'_, '_>, value: &[u8], expiry_ms: u64) -> Effect {
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

fn setnx(cx: &mut Cx<'_, '_>) -> Result<Effect, Error> {
    let free = !cx.view.exists(0);
    if free {
        cx.view.put_text(0, Tag::Text, &cx.args[2], None);
        cx.view.changed(0, Class::STRING, "set");
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

fn set_expiring(cx: &mut Cx<'_, '_>, unit: TimeUnit, command: &str) -> Result<Effect, Error> {
    let expiry = expiry_ms(&cx.args[2], unit, cx.view.env, command)?;
    put_expiring(&mut cx.view, &cx.args[3], expiry);
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

fn getset(cx: &mut Cx<'_, '_>) -> Result<Effect, Error> {
    match cx.view.text(0)? {
        Some(text) => text.write_to(cx.reply),
        None => cx.reply.null(),
    }
    cx.view.put_text(0, Tag::Text, &cx.args[2], None);
    cx.view.changed(0, Class::STRING, "set");
    Ok(Effect::Rewritten(vec![call(&[b"SET", cx.view.key(0), &cx.args[2]])]))
}

#[cfg(test)]
mod tests {
    use crate::testing::events::{check_events, check_valkey_events};
    use crate::testing::{check, check_valkey, check_valkey3};

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
            "SET k v PERSIST",
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
    fn set_if_equal() {
        check_valkey(
            "SET k v IFEQ a; SET k v; SET k w IFEQ v; SET k x IFEQ v; SET k x IFEQ '' GET; \
             SET k y IFEQ w GET; GET k; SET none v IFEQ '' GET",
            "_; +OK; +OK; _; $w; $w; $y; _",
        );
        check_valkey3("SET k v IFEQ a; SET k v; SET k w IFEQ v GET", "_; +OK; $v");
        check_valkey(
            "SET k 1; SET k 2 ifeq 1 EX 100; TTL k; SET k 3 KEEPTTL IFEQ 2; TTL k; SET k 4 IFEQ 3; \
             TTL k; SET k 007; SET k 8 IFEQ 7",
            "+OK; +OK; :100; +OK; :100; +OK; :-1; +OK; _",
        );
        let syntax = "-ERR syntax error";
        for options in ["IFEQ v NX", "XX IFEQ v", "IFEQ", "IFEQ v IFEQ v", "IFEQ EX 10"] {
            check_valkey(&format!("SET k v; SET k w {options}"), &format!("+OK; {syntax}"));
        }
        let wrong_type = "-WRONGTYPE Operation against a key holding the wrong kind of value";
        check_valkey(
            "HSET h f v; SET h v IFEQ v; SET h v IFEQ v GET; TYPE h; SET h v IFEQ v EX 0",
            &format!(
                ":1; {wrong_type}; {wrong_type}; +hash; -ERR invalid expire time in 'set' command"
            ),
        );
    }

    #[test]
    fn older_ways_to_set() {
        check("SETNX k a; SETNX k b; GETSET k c; GET k", ":1; :0; $a; $c");
        check("SETEX k 100 v; TTL k; PSETEX k 100000 w; TTL k; GET k", "+OK; :100; +OK; :100; $w");
    }

    #[test]
    fn events_of_setting() {
        check_events(
            "SET k v; SET k v; SET k w EX 100; SET k v KEEPTTL; SET k v NX; SET none v XX; SET k \
             x GET; SET n x GET",
            "new k, set k; set k; set k, expire k; set k; ; ; set k; keymiss n, new n, set n",
        );
        check_events(
            "SETNX k v; SETNX k w; SETEX k 10 v; PSETEX k 1000 v; GETSET k x; GETSET n x; HSET h \
             f v; SET h v; SET h v EX 0",
            "new k, set k; ; set k, expire k; set k, expire k; set k; keymiss n, new n, set n; \
             new h, hset h; set h; ",
        );
        check_valkey_events(
            "SET k v; SET k w IFEQ v; SET k w IFEQ v; SET k x IFEQ w EX 100; SET none v IFEQ v GET",
            "new k, set k; set k; ; set k, expire k; keymiss none",
        );
    }

    #[test]
    fn an_expiry_that_has_passed_deletes() {
        check_valkey_events(
            "SET k v; SET k v PXAT 1; GET k; SET n v PXAT 1; SET n v PXAT 1 GET; HSET h f v; SET \
             h v EXAT 1; SET k w PXAT 1 XX; SET k w PXAT 1 NX",
            "new k, set k; expired k; keymiss k; ; keymiss n; new h, hset h; expired h; ; ",
        );
    }
}
