//! When keys die: EXPIRE, PEXPIRE, EXPIREAT, PEXPIREAT; TTL, PTTL, EXPIRETIME, PEXPIRETIME;
//! PERSIST.

use crate::command::{Command, Cx, Run};
use crate::commands::condition::{self, Conditions};
use crate::commands::options::{TimeUnit, integer};
use crate::effect::{Effect, call};
use crate::error::Error;
use crate::event::Class;
use crate::spec::{Argument, ArgumentKind, Categories, Flags, KeyFlags, KeySpec, Spec};

pub static COMMANDS: &[&Command] =
    &[&EXPIRE, &PEXPIRE, &EXPIREAT, &PEXPIREAT, &TTL, &PTTL, &EXPIRETIME, &PEXPIRETIME, &PERSIST];

/// What the present expiry must be like.
const CONDITION: Argument = condition::WORDS.since("7.0.0");

/// The row of the four that set an expiry.
const EXPIRES: Spec = Spec {
    arity: -3,
    flags: Flags::WRITE.union(Flags::FAST),
    categories: Categories::KEYSPACE,
    keys: &[KeySpec::first(KeyFlags::RW.union(KeyFlags::UPDATE))],
    history: &[("7.0.0", "Takes `NX`, `XX`, `GT` and `LT`.")],
    ..Spec::BLANK
};

static EXPIRE: Command = Command {
    spec: Spec {
        name: "expire",
        summary: "Lets a key live for some seconds from now.",
        since: "1.0.0",
        arguments: &[Argument::key("key", 0), Argument::integer("seconds"), CONDITION],
        ..EXPIRES
    },
    run: Run::Keys(|cx| expire(cx, TimeUnit::Seconds, "expire")),
};

static PEXPIRE: Command = Command {
    spec: Spec {
        name: "pexpire",
        summary: "Lets a key live for some milliseconds from now.",
        since: "2.6.0",
        arguments: &[Argument::key("key", 0), Argument::integer("milliseconds"), CONDITION],
        ..EXPIRES
    },
    run: Run::Keys(|cx| expire(cx, TimeUnit::Milliseconds, "pexpire")),
};

static EXPIREAT: Command = Command {
    spec: Spec {
        name: "expireat",
        summary: "Lets a key live until a Unix time in seconds.",
        since: "1.2.0",
        arguments: &[
            Argument::key("key", 0),
            Argument::new("unix-time-seconds", ArgumentKind::UnixTime),
            CONDITION,
        ],
        ..EXPIRES
    },
    run: Run::Keys(|cx| expire(cx, TimeUnit::UnixSeconds, "expireat")),
};

static PEXPIREAT: Command = Command {
    spec: Spec {
        name: "pexpireat",
        summary: "Lets a key live until a Unix time in milliseconds.",
        since: "2.6.0",
        arguments: &[
            Argument::key("key", 0),
            Argument::new("unix-time-milliseconds", ArgumentKind::UnixTime),
            CONDITION,
        ],
        ..EXPIRES
    },
    run: Run::Keys(|cx| expire(cx, TimeUnit::UnixMilliseconds, "pexpireat")),
};

fn expire(cx: &mut Cx<'_, '_>, unit: TimeUnit, command: &str) -> Result<Effect, Error> {
    let conditions = Conditions::parse(cx.args.from(3))?;
    let ms = unit.unix_ms(integer(&cx.args[2])?, cx.view.env);
    let invalid = || Error::new(format!("ERR invalid expire time in '{command}' command"));
    let ms = ms.ok_or_else(invalid)?;
    let wanted = match cx.view.peek(0) {
        None => false,
        Some(record) => conditions.allow(record.expiry_ms(), ms),
    };
    cx.reply.integer(i64::from(wanted));
    if !wanted {
        return Ok(Effect::None);
    }
    let key = cx.view.key(0);
    // Who replays a log, or follows a master, deletes only what is said to be deleted.
    let env = cx.view.env;
    let ms_or_zero = ms.max(0) as u64;
    if env.has_passed(ms_or_zero) {
        cx.view.expire(0);
        return Ok(Effect::Rewritten(vec![call(&[b"DEL", key])]));
    }
    cx.view.set_expiry(0, Some(ms_or_zero));
    cx.view.changed(0, Class::GENERIC, "expire");
    let ms = ms_or_zero.to_string();
    Ok(Effect::Rewritten(vec![call(&[b"PEXPIREAT", key, ms.as_bytes()])]))
}

/// The row of the four that tell the expiry.
const ASK: Spec = Spec {
    arity: 2,
    flags: Flags::READONLY.union(Flags::FAST),
    categories: Categories::KEYSPACE,
    keys: &[KeySpec::first(KeyFlags::RO.union(KeyFlags::ACCESS))],
    arguments: &[Argument::key("key", 0)],
    ..Spec::BLANK
};
/// With what was once another reply.
const ASK_LEFT: Spec = Spec {
    tips: &["nondeterministic_output"],
    history: &[("2.8.0", "Replies with -2 for a free key.")],
    ..ASK
};

static TTL: Command = Command {
    spec: Spec {
        name: "ttl",
        summary: "Returns how many seconds a key has left.",
        since: "1.0.0",
        ..ASK_LEFT
    },
    run: Run::Keys(|cx| ask(cx, TimeUnit::Seconds)),
};

static PTTL: Command = Command {
    spec: Spec {
        name: "pttl",
        summary: "Returns how many milliseconds a key has left.",
        since: "2.6.0",
        ..ASK_LEFT
    },
    run: Run::Keys(|cx| ask(cx, TimeUnit::Milliseconds)),
};

static EXPIRETIME: Command = Command {
    spec: Spec {
        name: "expiretime",
        summary: "Returns the Unix time in seconds at which a key expires.",
        since: "7.0.0",
        ..ASK
    },
    run: Run::Keys(|cx| ask(cx, TimeUnit::UnixSeconds)),
};

static PEXPIRETIME: Command = Command {
    spec: Spec {
        name: "pexpiretime",
        summary: "Returns the Unix time in milliseconds at which a key expires.",
        since: "7.0.0",
        ..ASK
    },
    run: Run::Keys(|cx| ask(cx, TimeUnit::UnixMilliseconds)),
};

/// Replies with the expiry.
fn ask(cx: &mut Cx<'_, '_>, unit: TimeUnit) -> Result<Effect, Error> {
    let now_ms = cx.view.env.now_ms;
    let reply = match cx.view.look(0).map(|record| record.expiry_ms()) {
        None => -2,
        Some(None) => -1,
        Some(Some(expiry_ms)) => unit.report(expiry_ms, now_ms),
    };
    cx.reply.integer(reply);
    Ok(Effect::None)
}

static PERSIST: Command = Command {
    spec: Spec {
        name: "persist",
        summary: "Takes away a key's expiry.",
        since: "2.2.0",
        arity: 2,
        flags: Flags::WRITE.union(Flags::FAST),
        categories: Categories::KEYSPACE,
        keys: &[KeySpec::first(KeyFlags::RW.union(KeyFlags::UPDATE))],
        arguments: &[Argument::key("key", 0)],
        ..Spec::BLANK
    },
    run: Run::Keys(persist),
};

fn persist(cx: &mut Cx<'_, '_>) -> Result<Effect, Error> {
    let had_one = cx.view.peek(0).is_some_and(|record| record.expiry_ms().is_some());
    if had_one {
        cx.view.set_expiry(0, None);
        cx.view.changed(0, Class::GENERIC, "persist");
    }
    cx.reply.integer(i64::from(had_one));
    Ok(Effect::given_if(had_one))
}

#[cfg(test)]
mod tests {
    use kvasir_resp::reply::Protocol;

    use crate::effect::{Effect, call};
    use crate::testing::events::{check_events, check_valkey_events};
    use crate::testing::{Bench, check, check3, split};

    #[test]
    fn expiries_are_set_in_four_units() {
        check("SET k v; EXPIRE k 100; TTL k; PERSIST k; TTL k", "+OK; :1; :100; :1; :-1");
        check("SET k v; PEXPIRE k 99900; TTL k", "+OK; :1; :100");
        check(
            "SET k v; EXPIREAT k 33177117420; EXPIRETIME k; PEXPIRETIME k",
            "+OK; :1; :33177117420; :33177117420000",
        );
        check(
            "SET k v; PEXPIREAT k 33177117420500; EXPIRETIME k; PEXPIRETIME k",
            "+OK; :1; :33177117421; :33177117420500",
        );
        check3("SET k v; EXPIRE k 100; TTL k", "+OK; :1; :100");
        check("HSET h f v; EXPIRE h 100; HGET h f; TTL h; PERSIST h", ":1; :1; $v; :100; :1");
    }

    #[test]
    fn a_long_key_and_a_long_value_expire_too() {
        let key = "k".repeat(300);
        check(
            &format!("SETRANGE {key} 20000 x; EXPIRE {key} 100; TTL {key}; STRLEN {key}"),
            ":20001; :1; :100; :20001",
        );
    }

    #[test]
    fn missing_keys() {
        check("EXPIRE none 1; PEXPIREAT none 1; PERSIST none", ":0; :0; :0");
        check("TTL none; PTTL none; EXPIRETIME none; PEXPIRETIME none", ":-2; :-2; :-2; :-2");
        check(
            "SET k v; TTL k; PTTL k; EXPIRETIME k; PEXPIRETIME k; PERSIST k",
            "+OK; :-1; :-1; :-1; :-1; :0",
        );
    }

    #[test]
    fn conditions() {
        check(
            "SET k v; EXPIRE k 100 XX; EXPIRE k 100 GT; EXPIRE k 100 NX; EXPIRE k 200 NX; TTL k",
            "+OK; :0; :0; :1; :0; :100",
        );
        check(
            "SET k v EX 100; EXPIRE k 50 GT; EXPIRE k 200 GT; EXPIRE k 300 LT; TTL k; \
             EXPIRE k 50 LT; TTL k",
            "+OK; :0; :1; :0; :200; :1; :50",
        );
        check(
            "SET k v; EXPIRE k 100 LT; TTL k; EXPIRE k 50 XX XX; TTL k",
            "+OK; :1; :100; :1; :50",
        );
        check("SET k v; EXPIRE k 10 LT XX; EXPIRE k 10 XX GT", "+OK; :0; :0");
        check(
            "SET k v PXAT 33177117420000; PEXPIREAT k 33177117420000 GT; \
             PEXPIREAT k 33177117420000 LT; PEXPIREAT k 33177117420000 XX",
            "+OK; :0; :0; :1",
        );
        check(
            "SET k v EX 100; EXPIRE k -1 GT; TTL k; EXPIRE k -1 LT; TTL k",
            "+OK; :0; :100; :1; :-2",
        );
    }

    #[test]
    fn conditions_that_exclude_each_other() {
        let nx = "-ERR NX and XX, GT or LT options at the same time are not compatible";
        for options in ["NX XX", "nx gt", "LT NX", "NX GT LT"] {
            check(&format!("EXPIRE k 10 {options}"), nx);
        }
        let gt = "-ERR GT and LT options at the same time are not compatible";
        check("PEXPIRE k 10 GT LT; EXPIREAT k 10 XX LT GT", &format!("{gt}; {gt}"));
        check(
            "EXPIRE k x FOO; EXPIRE k 1 NX FOO",
            "-ERR Unsupported option FOO; -ERR Unsupported option FOO",
        );
    }

    #[test]
    fn times_out_of_range() {
        let invalid = |command| format!("-ERR invalid expire time in '{command}' command");
        for command in ["expire", "pexpire", "expireat"] {
            check(&format!("{command} k 9223372036854775807"), &invalid(command));
        }
        check("EXPIRE k -9223372036854775808", &invalid("expire"));
        check(
            "EXPIRE k 9223372036854774; EXPIRE k -9223372036854775",
            &format!("{}; :0", invalid("expire")),
        );
        check(
            "EXPIRE none x; EXPIRE k 1.5",
            "-ERR value is not an integer or out of range; -ERR value is not an integer or out of range",
        );
        check(
            "SET k v; PEXPIREAT k 9223372036854775807; PEXPIRETIME k; EXPIRETIME k",
            "+OK; :1; :9223372036854775807; :9223372036854776",
        );
    }

    #[test]
    fn a_time_that_has_passed_deletes() {
        for call in ["EXPIRE k -1", "EXPIRE k 0", "PEXPIRE k -5", "EXPIREAT k 1", "PEXPIREAT k -5"]
        {
            check(&format!("SET k v; {call}; EXISTS k; DBSIZE"), "+OK; :1; :0; :0");
        }
    }

    #[test]
    fn effects_are_absolute() {
        let mut bench = Bench::new(Protocol::Resp2);
        bench.env.now_ms = 1_000_000;
        let mut effect = |text: &str| bench.call(split(text)[0].as_args()).1;
        effect("SET k v");
        let set = Effect::Rewritten(vec![call(&[b"PEXPIREAT", b"k", b"1100000"])]);
        assert_eq!(effect("EXPIRE k 100"), set);
        assert_eq!(effect("EXPIREAT k 1100"), set);
        assert_eq!(effect("PEXPIRE k 100000"), set);
        assert_eq!(effect("EXPIRE k 100 GT"), Effect::None);
        assert_eq!(effect("TTL k"), Effect::None);
        assert_eq!(effect("PERSIST k"), Effect::AsGiven);
        assert_eq!(effect("PERSIST k"), Effect::None);
        assert_eq!(effect("EXPIRE k -1"), Effect::Rewritten(vec![call(&[b"DEL", b"k"])]));
        assert_eq!(effect("EXPIRE k -1"), Effect::None);
    }

    #[test]
    fn time_left_is_rounded() {
        let mut bench = Bench::new(Protocol::Resp2);
        bench.env.now_ms = 1_000_000;
        bench.call(split("SET k v PXAT 1001500")[0].as_args());
        let mut ttl = |now_ms, call: &str| {
            bench.env.now_ms = now_ms;
            String::from_utf8(bench.call(split(call)[0].as_args()).0).unwrap()
        };
        assert_eq!(ttl(1_000_000, "TTL k"), ":2\r\n");
        assert_eq!(ttl(1_000_001, "TTL k"), ":1\r\n");
        assert_eq!(ttl(1_001_001, "TTL k"), ":0\r\n");
        assert_eq!(ttl(1_001_001, "PTTL k"), ":499\r\n");
        assert_eq!(ttl(1_001_500, "TTL k"), ":-2\r\n");
    }

    #[test]
    fn events_of_expiries() {
        check_events(
            "SET k v; EXPIRE k 100; EXPIRE k 100 NX; EXPIRE k 50 GT; EXPIRE k 100; EXPIRE none \
             100; PEXPIRE k 1000000; EXPIREAT k 33177117420; PEXPIREAT k 33177117420000; PERSIST \
             k; PERSIST k; PERSIST none",
            "new k, set k; expire k; ; ; expire k; ; expire k; expire k; expire k; persist k; ; ",
        );
        check_valkey_events(
            "SET k v; EXPIRE k -1; EXPIRE k -1; SET k v; PEXPIREAT k 1; SADD s a; PEXPIRE s 0",
            "new k, set k; expired k; ; new k, set k; expired k; new s, sadd s; expired s",
        );
        check_events(
            "TTL k; PTTL k; EXPIRETIME k; PEXPIRETIME k; SET k v; TTL k",
            "keymiss k; keymiss k; keymiss k; keymiss k; new k, set k; ",
        );
    }

    #[test]
    fn a_key_that_expires_is_told_when_it_is_deleted() {
        check_events(
            "SET k v PX 50; SLEEP 400; GET k; RPUSH l a; PEXPIRE l 50; SLEEP 400; LPUSH l b",
            "new k, set k, expire k; expired k; keymiss k; new l, rpush l; expire l; expired l; \
             new l, lpush l",
        );
    }
}
