//! OBJECT: how a value is kept.

use crate::command::{Command, Cx, Roam, Run};
use crate::effect::Effect;
use crate::error::Error;
use crate::spec::{Argument, Categories, Flags, KeyFlags, KeySpec, Spec, Traits};
use crate::value;

pub static COMMANDS: &[&Command] = &[&OBJECT];

static OBJECT: Command = Command {
    spec: Spec {
        name: "object",
        summary: "Tells how a value is kept.",
        since: "2.2.3",
        complexity: "That of the subcommand.",
        arity: -2,
        ..Spec::BLANK
    },
    run: Run::Container(&[&ENCODING, &FREQ, &HELP, &IDLETIME, &REFCOUNT]),
};

/// The row of those that look at a key.
const OF_KEY: Spec = Spec {
    arity: 3,
    flags: Flags::READONLY,
    traits: Traits::LOOKS,
    categories: Categories::KEYSPACE,
    keys: &[KeySpec::range(KeyFlags::RO, 2, 0, 1)],
    tips: &["nondeterministic_output"],
    arguments: &[Argument::key("key", 0)],
    ..Spec::BLANK
};

static ENCODING: Command = Command {
    spec: Spec {
        name: "encoding",
        summary: "Returns the encoding of a value.",
        since: "2.2.3",
        ..OF_KEY
    },
    run: Run::Keys(encoding),
};

fn encoding(cx: &mut Cx<'_, '_>) -> Result<Effect, Error> {
    match cx.view.inspect(0) {
        Some(record) => cx.reply.bulk(value::encoding(record).as_bytes()),
        None => cx.reply.null(),
    }
    Ok(Effect::None)
}

static FREQ: Command = Command {
    spec: Spec {
        name: "freq",
        summary: "Returns how often a key was used lately, on a logarithmic scale.",
        since: "4.0.0",
        ..OF_KEY
    },
    run: Run::Keys(freq),
};

fn freq(cx: &mut Cx<'_, '_>) -> Result<Effect, Error> {
    let (env, db, hash) = (cx.view.env, cx.view.db_of(0), cx.view.hash_of(0));
    match cx.view.inspect(0) {
        Some(record) if env.policy.is_lfu() => {
            cx.reply.integer(i64::from(env.frequency(record.clock())));
        }
        Some(_) => match env.uses {
            Some(uses) => cx.reply.integer(i64::from(uses.frequency(db, hash))),
            None => {
                return Err(Error::fixed(
                    "ERR An LFU maxmemory policy is not selected, access frequency not tracked. \
                     Please note that when switching between policies at runtime LRU and LFU data \
                     will take some time to adjust.",
                ));
            }
        },
        None => cx.reply.null(),
    }
    Ok(Effect::None)
}

static IDLETIME: Command = Command {
    spec: Spec {
        name: "idletime",
        summary: "Returns the seconds since a key was last used.",
        since: "2.2.3",
        ..OF_KEY
    },
    run: Run::Keys(idletime),
};

fn idletime(cx: &mut Cx<'_, '_>) -> Result<Effect, Error> {
    let env = cx.view.env;
    match cx.view.inspect(0) {
        Some(_) if env.policy.is_lfu() => {
            return Err(Error::fixed(
                "ERR An LFU maxmemory policy is selected, idle time not tracked. Please note \
                 that when switching between policies at runtime LRU and LFU data will take some \
                 time to adjust.",
            ));
        }
        Some(record) => cx.reply.integer(i64::from(env.idle_s(record.clock()))),
        None => cx.reply.null(),
    }
    Ok(Effect::None)
}

static REFCOUNT: Command = Command {
    spec: Spec {
        name: "refcount",
        summary: "Returns how many references a value has.",
        since: "2.2.3",
        ..OF_KEY
    },
    run: Run::Keys(refcount),
};

/// Always 1: values are not shared between keys. (Redis shares the integers below 10,000 and
/// reports 2147483647 for them.)
fn refcount(cx: &mut Cx<'_, '_>) -> Result<Effect, Error> {
    match cx.view.inspect(0) {
        Some(_) => cx.reply.integer(1),
        None => cx.reply.null(),
    }
    Ok(Effect::None)
}

static HELP: Command = Command {
    spec: Spec {
        name: "help",
        summary: "Explains the subcommands.",
        since: "6.2.0",
        arity: 2,
        flags: Flags::LOADING.union(Flags::STALE),
        categories: Categories::KEYSPACE,
        ..Spec::BLANK
    },
    run: Run::Roam(help),
};

/// In RESP, HELP's lines are statuses.
fn help(cx: &mut Roam<'_>) -> Result<Effect, Error> {
    const LINES: &[&str] = &[
        "OBJECT <subcommand> [<arg> [value] [opt] ...]. Subcommands are:",
        "ENCODING <key>",
        "    How the value of <key> is kept.",
        "FREQ <key>",
        "    How often <key> was used lately, on a logarithmic scale.",
        "IDLETIME <key>",
        "    Seconds since <key> was last used.",
        "REFCOUNT <key>",
        "    How many keys share the value of <key>: always 1.",
        "HELP",
        "    Prints this help.",
    ];
    cx.reply.array(LINES.len());
    LINES.iter().for_each(|line| cx.reply.simple(line));
    Ok(Effect::None)
}

#[cfg(test)]
mod tests {
    use kvasir_resp::reply::Protocol;

    use crate::access::Policy;
    use crate::testing::events::check_events;
    use crate::testing::{Bench, check, check_ours, check3, show_all, split};

    #[test]
    fn encodings() {
        check(
            "SET k 12; OBJECT ENCODING k; SET k 012; OBJECT ENCODING k; OBJECT ENCODING none",
            "+OK; $int; +OK; $embstr; _",
        );
        check(
            &format!(
                "SET k {}; OBJECT ENCODING k; SET k {}x; OBJECT ENCODING k",
                "x".repeat(44),
                "x".repeat(44)
            ),
            "+OK; $embstr; +OK; $raw",
        );
        check3("SET k v; OBJECT ENCODING k; OBJECT ENCODING none", "+OK; $embstr; _");
        check("SET k 9223372036854775808; OBJECT ENCODING k", "+OK; $embstr");
        check("HSET h f v; OBJECT ENCODING h", ":1; $listpack");
    }

    #[test]
    fn frequency_is_not_tracked() {
        check(
            "SET k v; OBJECT FREQ k; OBJECT FREQ none",
            "+OK; -ERR An LFU maxmemory policy is not selected, access frequency not tracked. \
             Please note that when switching between policies at runtime LRU and LFU data will \
             take some time to adjust.; _",
        );
    }

    #[test]
    fn frequencies_stand_where_idle_times_did_under_lfu() {
        let mut bench = Bench::new(Protocol::Resp2);
        bench.env.policy = Policy::VolatileLfu;
        let mut ask = |minutes: u64, call: &str| {
            bench.env.now_ms += minutes * 60_000;
            show_all(&[bench.call(split(call)[0].as_args()).0])
        };
        ask(0, "SET k v");
        assert_eq!(ask(0, "OBJECT FREQ k"), ":5");
        assert_eq!(ask(0, "OBJECT FREQ none"), "_");
        // The first use is counted for certain.
        assert_eq!(ask(0, "GET k"), "$v");
        assert_eq!(ask(0, "OBJECT FREQ k"), ":6");
        assert_eq!(ask(2, "OBJECT FREQ k"), ":4");
        assert_eq!(ask(0, "SET k v"), "+OK");
        assert_eq!(ask(0, "OBJECT FREQ k"), ":5", "a use, not a new key");
        assert_eq!(
            ask(0, "OBJECT IDLETIME k"),
            "-ERR An LFU maxmemory policy is selected, idle time not tracked. Please note that \
             when switching between policies at runtime LRU and LFU data will take some time to \
             adjust."
        );
        assert_eq!(ask(0, "OBJECT IDLETIME none"), "_");
    }

    #[test]
    fn counts() {
        check(
            "SET k v; OBJECT REFCOUNT k; OBJECT REFCOUNT none; OBJECT IDLETIME none; \
             OBJECT ENCODING",
            "+OK; :1; _; _; -ERR wrong number of arguments for 'object|encoding' command",
        );
        check_ours("SET k 1; OBJECT REFCOUNT k", "+OK; :1");
    }

    #[test]
    fn idle_time_counts_from_the_last_access() {
        let mut bench = Bench::new(Protocol::Resp2);
        let mut run = |now_ms, call: &str| {
            bench.env.now_ms = now_ms;
            String::from_utf8(bench.call(split(call)[0].as_args()).0).unwrap()
        };
        run(5_000, "SET k v");
        assert_eq!(run(9_999, "OBJECT IDLETIME k"), ":4\r\n");
        assert_eq!(run(9_999, "TTL k"), ":-1\r\n");
        assert_eq!(run(9_999, "OBJECT IDLETIME k"), ":4\r\n", "TTL is no access");
        run(10_000, "TOUCH k");
        assert_eq!(run(12_000, "OBJECT IDLETIME k"), ":2\r\n");
        // The clock has 24 bits.
        run((1 << 24) * 1000 - 1000, "GET k");
        assert_eq!(run((1 << 24) * 1000 + 1000, "OBJECT IDLETIME k"), ":2\r\n");
    }

    #[test]
    fn help_is_lines() {
        let mut bench = Bench::new(Protocol::Resp2);
        let (reply, _) = bench.call(split("OBJECT HELP")[0].as_args());
        assert!(reply.starts_with(b"*11\r\n+OBJECT <subcommand> "));
    }

    #[test]
    fn only_touch_moves_the_clock_of_a_client_that_does_not_touch() {
        let mut bench = Bench::new(kvasir_resp::reply::Protocol::Resp2);
        let ask = |bench: &mut Bench, call: &str| bench.call(split(call)[0].as_args()).0;
        ask(&mut bench, "SET k v");
        bench.env.now_ms += 5000;
        bench.env.touches = false;
        assert_eq!(ask(&mut bench, "GET k"), b"$1\r\nv\r\n");
        assert_eq!(ask(&mut bench, "OBJECT IDLETIME k"), b":5\r\n");
        assert_eq!(ask(&mut bench, "TOUCH k"), b":1\r\n");
        assert_eq!(ask(&mut bench, "OBJECT IDLETIME k"), b":0\r\n");
    }

    #[test]
    fn a_miss_is_no_event() {
        check_events(
            "OBJECT ENCODING k; OBJECT IDLETIME k; OBJECT REFCOUNT k; OBJECT FREQ k",
            "; ; ; ",
        );
    }
}
