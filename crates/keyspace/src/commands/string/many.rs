//! Setting several strings in one moment: MSET, MSETNX, MSETEX.

use crate::command::{Command, Cx, Run};
use crate::commands::expiration::{Expiration, TIME_OR_KEEPTTL};
use crate::commands::options::integer;
use crate::effect::Effect;
use crate::error::Error;
use crate::event::Class;
use crate::spec::{Argument, Begin, Find, Flags, Group, KeyFlags, KeySpec, Spec};
use crate::value::Tag;

pub static COMMANDS: &[&Command] = &[&MSET, &MSETNX, &MSETEX];

const PARTS: &[Argument] = &[Argument::key("key", 0), Argument::string("value")];
/// Keys and their values.
const PAIRS: &[Argument] = &[Argument::block("key_value", PARTS).multiple()];

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

fn mset(cx: &mut Cx<'_, '_>) -> Result<Effect, Error> {
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

fn msetnx(cx: &mut Cx<'_, '_>) -> Result<Effect, Error> {
    check_pairs(cx, "msetnx")?;
    let free = (0..cx.view.key_count()).all(|key| !cx.view.exists(key));
    if free {
        set_all(cx);
    }
    cx.reply.integer(i64::from(free));
    Ok(Effect::given_if(free))
}

fn check_pairs(cx: &Cx<'_, '_>, command: &str) -> Result<(), Error> {
    if cx.args.len().is_multiple_of(2) { Err(Error::wrong_arity(command)) } else { Ok(()) }
}

fn set_all(cx: &mut Cx<'_, '_>) {
    for key in 0..cx.view.key_count() {
        cx.view.put_text(key, Tag::Text, &cx.args[2 * key + 2], None);
        cx.view.changed(key, Class::STRING, "set");
    }
}

static MSETEX: Command = Command {
    spec: Spec {
        name: "msetex",
        summary: "Sets several keys to strings in one moment, with an expiry or on a condition.",
        since: "9.1.0",
        group: Group::String,
        complexity: "O(N) where N is the number of keys.",
        arity: -4,
        flags: Flags::WRITE.union(Flags::DENYOOM).union(Flags::MOVABLEKEYS),
        keys: &[KeySpec {
            flags: KeyFlags::OW.union(KeyFlags::UPDATE),
            notes: None,
            begin: Begin::Index(1),
            find: Find::Count { count: 0, first: 1, step: 2 },
        }],
        tips: &["request_policy:multi_shard", "response_policy:all_succeeded"],
        arguments: &[
            Argument::integer("numkeys"),
            Argument::block("data", PARTS).multiple(),
            Argument::one_of(
                "condition",
                &[Argument::word("nx", "NX"), Argument::word("xx", "XX")],
            )
            .optional(),
            TIME_OR_KEEPTTL,
        ],
        ..Spec::BLANK
    },
    run: Run::Keys(msetex),
};

/// The options that stand behind MSETEX's pairs.
#[derive(Default)]
struct Options<'a> {
    /// What every key must be: there, or free.
    exists: Option<bool>,
    expiration: Expiration<'a>,
}

impl<'a> Options<'a> {
    fn parse(mut words: impl Iterator<Item = &'a [u8]>) -> Result<Options<'a>, Error> {
        let mut options = Options::default();
        while let Some(word) = words.next() {
            let exists = if word.eq_ignore_ascii_case(b"nx") {
                false
            } else if word.eq_ignore_ascii_case(b"xx") {
                true
            } else if options.expiration.take(word, &mut words, "KEEPTTL")? {
                continue;
            } else {
                return Err(Error::SYNTAX);
            };
            if options.exists.is_some_and(|other| other != exists) {
                return Err(Error::SYNTAX);
            }
            options.exists = Some(exists);
        }
        Ok(options)
    }
}

fn msetex(cx: &mut Cx<'_, '_>) -> Result<Effect, Error> {
    let invalid = Error::fixed("ERR invalid numkeys value or out of range");
    let count = integer(&cx.args[1]).ok().and_then(|count| i32::try_from(count).ok());
    let count = count.filter(|count| *count > 0).ok_or(invalid)? as usize;
    let options_at = 2 + 2 * count;
    if cx.args.len() < options_at {
        return Err(Error::SYNTAX);
    }
    let options = Options::parse(cx.args.from(options_at).iter())?;
    let expiry = options.expiration.expiry_ms(cx.view.env, "msetex")?;
    let wanted = match options.exists {
        None => true,
        Some(exists) => (0..count).all(|key| cx.view.exists(key) == exists),
    };
    cx.reply.integer(i64::from(wanted));
    if !wanted {
        return Ok(Effect::None);
    }
    for key in 0..count {
        let expiry = match options.expiration {
            Expiration::Word => cx.view.peek(key).and_then(|record| record.expiry_ms()),
            Expiration::Unsaid | Expiration::At(..) => expiry,
        };
        cx.view.put_text(key, Tag::Text, &cx.args[2 * key + 3], expiry);
        cx.view.changed(key, Class::STRING, "set");
        if matches!(options.expiration, Expiration::At(..)) {
            cx.view.changed(key, Class::GENERIC, "expire");
        }
    }
    Ok(match expiry {
        Some(expiry_ms) => with_expiry(cx, options_at, expiry_ms),
        None => Effect::AsGiven,
    })
}

/// The effect of an MSETEX with an expiry: the same pairs with an absolute time.
fn with_expiry(cx: &Cx<'_, '_>, options_at: usize, expiry_ms: u64) -> Effect {
    if !cx.view.env.logs {
        return Effect::Rewritten(Vec::new());
    }
    let ms = expiry_ms.to_string();
    let pairs = cx.args.first(options_at).from(1);
    let words = std::iter::once(&b"MSETEX"[..]).chain(pairs).chain([&b"PXAT"[..], ms.as_bytes()]);
    Effect::Rewritten(vec![words.map(<[u8]>::to_vec).collect()])
}

#[cfg(test)]
mod tests {
    use kvasir_resp::reply::Protocol;

    use crate::effect::{Effect, call};
    use crate::testing::events::{check_events, check_valkey_events};
    use crate::testing::{Bench, check, check_valkey, check_valkey3, split};

    #[test]
    fn mset_and_msetnx() {
        check("MSET a 1 b 2 a 3; MGET a b", "+OK; [$3 $2]");
        check("MSETNX a 1 b 2; MSETNX b 3 c 4; MGET a b c", ":1; :0; [$1 $2 _]");
        check("MSET a 1 b", "-ERR wrong number of arguments for 'mset' command");
    }

    #[test]
    fn msetex_with_every_option() {
        check_valkey(
            "MSETEX 2 a 1 b 2; MGET a b; MSETEX 2 a 3 c 4 NX; MSETEX 2 c 4 d 5 nx; \
             MSETEX 2 a 6 e 7 XX; MSETEX 2 a 6 b 7 XX; MGET a b c d e",
            ":1; [$1 $2]; :0; :1; :0; :1; [$6 $7 $4 $5 _]",
        );
        check_valkey(
            "MSETEX 2 a 1 b 1 EX 100; TTL a; TTL b; MSETEX 1 a 2 KEEPTTL; TTL a; MSETEX 1 a 3; TTL a; \
             MSETEX 1 a 1 NX NX XX; MSETEX 1 a 1 EX 9 EX 100; TTL a; MSETEX 1 n 1 KEEPTTL NX KEEPTTL",
            ":1; :100; :100; :1; :100; :1; :-1; -ERR syntax error; :1; :100; :1",
        );
        check_valkey(
            "MSETEX 1 a 1 PXAT 33177117420000 NX; PEXPIRETIME a; MSETEX 1 a 1 PXAT 1; GET a",
            ":1; :33177117420000; :1; _",
        );
        check_valkey(
            "MSETEX 2 d 1 d 2 NX; GET d; HSET h f v; MSETEX 1 h 1; GET h",
            ":1; $2; :1; :1; $1",
        );
        check_valkey3("MSETEX 1 a 1; MSETEX 1 a 1 NX", ":1; :0");
        check_valkey("MSETEX 2 a 1 EX 10; GET EX", ":1; $10");
    }

    #[test]
    fn msetex_refuses() {
        let invalid = "-ERR invalid numkeys value or out of range";
        for count in ["0", "-1", "x", "2147483648", "9223372036854775808"] {
            check_valkey(&format!("MSETEX {count} a 1 FOO"), invalid);
        }
        let options = ["FOO", "EX", "NX XX", "XX NX", "EX 1 PX 1", "EX 1 KEEPTTL", "KEEPTTL PX 1"];
        for option in options.iter().chain(&["b 2", "PERSIST", "GET", "IFEQ 1", "NX EX"]) {
            check_valkey(&format!("MSETEX 1 a 1 {option}; GET a"), "-ERR syntax error; _");
        }
        check_valkey(
            "MSETEX 2 a 1 b; MSETEX 2 a 1; MSETEX 2147483647 a 1; MSETEX 1 a",
            "-ERR syntax error; -ERR syntax error; -ERR syntax error; \
             -ERR wrong number of arguments for 'msetex' command",
        );
        let time = "-ERR invalid expire time in 'msetex' command";
        check_valkey(
            "MSETEX 1 a 1 EX 0; MSETEX 1 a 1 EX 9223372036854775807; MSETEX 1 a 1 PX -1 XX; MSETEX 1 a 1 EX x",
            &format!("{time}; {time}; {time}; -ERR value is not an integer or out of range"),
        );
    }

    #[test]
    fn the_log_gets_an_absolute_time() {
        let mut bench = Bench::new(Protocol::Resp2);
        bench.env.now_ms = 1_000_000;
        let mut effect = |text: &str| bench.call(split(text)[0].as_args()).1;
        let words: [&[u8]; 8] = [b"MSETEX", b"2", b"a", b"1", b"b", b"2", b"PXAT", b"1100000"];
        assert_eq!(effect("MSETEX 2 a 1 b 2 EX 100 NX"), Effect::Rewritten(vec![call(&words)]));
        assert_eq!(effect("MSETEX 2 a 1 b 2 EX 100 NX"), Effect::None);
        assert_eq!(effect("MSETEX 1 a 1 KEEPTTL XX"), Effect::AsGiven);
    }

    #[test]
    fn events_of_setting_several() {
        check_events(
            "MSET a 1 b 2; MSET a 1 a 2; MSETNX a 1 c 2; MSETNX c 1 d 2",
            "new a, set a, new b, set b; set a, set a; ; new c, set c, new d, set d",
        );
        check_valkey_events(
            "MSETEX 2 a 1 b 2; MSETEX 2 a 1 b 2 EX 100; MSETEX 2 a 1 c 2 NX; MSETEX 1 a 1 XX \
             KEEPTTL; MSETEX 2 a 1 a 2 PX 100000; MSETEX 1 a 1 XX",
            "new a, set a, new b, set b; set a, expire a, set b, expire b; ; set a; set a, \
             expire a, set a, expire a; set a",
        );
    }
}
