//! Setting and deleting fields: HSET, HMSET, HSETNX, HDEL.

use crate::command::{Command, Cx, Run};
use crate::effect::Effect;
use crate::error::Error;
use crate::event::Class;
use crate::hash_update::{self, FieldExpiry};
use crate::hash_value;
use crate::spec::{Argument, Flags, Group, KeyFlags, KeySpec, Spec};

pub static COMMANDS: &[&Command] = &[&HSET, &HMSET, &HSETNX, &HDEL];

const PAIRS: &[Argument] = &[
    Argument::key("key", 0),
    Argument::block("field_value", &[Argument::string("field"), Argument::string("value")])
        .multiple(),
];

static HSET: Command = Command {
    spec: Spec {
        name: "hset",
        summary: "Sets fields of a hash, which is created if the key is free.",
        since: "2.0.0",
        group: Group::Hash,
        complexity: "O(N) where N is the number of fields given, so O(1) for one.",
        arity: -4,
        flags: Flags::WRITE.union(Flags::DENYOOM).union(Flags::FAST),
        keys: &[KeySpec::first(KeyFlags::RW.union(KeyFlags::UPDATE))],
        history: &[("4.0.0", "Takes several pairs of `field` and `value`.")],
        arguments: PAIRS,
        ..Spec::BLANK
    },
    run: Run::Keys(|cx| {
        let added = set_pairs(cx, "hset")?;
        cx.reply.integer(added as i64);
        Ok(Effect::AsGiven)
    }),
};

static HMSET: Command = Command {
    spec: Spec {
        name: "hmset",
        summary: "Sets fields of a hash; HSET does the same since 4.0.0.",
        since: "2.0.0",
        group: Group::Hash,
        complexity: "O(N) where N is the number of fields given.",
        arity: -4,
        flags: Flags::WRITE.union(Flags::DENYOOM).union(Flags::FAST),
        keys: &[KeySpec::first(KeyFlags::RW.union(KeyFlags::UPDATE))],
        deprecated: Some(("4.0.0", "`HSET` with multiple field-value pairs")),
        arguments: PAIRS,
        ..Spec::BLANK
    },
    run: Run::Keys(|cx| {
        set_pairs(cx, "hmset")?;
        cx.reply.ok();
        Ok(Effect::AsGiven)
    }),
};

fn set_pairs(cx: &mut Cx<'_, '_>, command: &str) -> Result<usize, Error> {
    let args = cx.args;
    if args.len() % 2 == 1 {
        return Err(Error::wrong_arity(command));
    }
    let pairs = args.from(2).iter().step_by(2).zip(args.from(3).iter().step_by(2));
    let added = hash_update::set(&mut cx.view, 0, pairs, FieldExpiry::Clear)?;
    cx.view.changed(0, Class::HASH, "hset");
    Ok(added)
}

static HSETNX: Command = Command {
    spec: Spec {
        name: "hsetnx",
        summary: "Sets a field of a hash that does not have it yet.",
        since: "2.0.0",
        group: Group::Hash,
        complexity: "O(1)",
        arity: 4,
        flags: Flags::WRITE.union(Flags::DENYOOM).union(Flags::FAST),
        keys: &[KeySpec::first(KeyFlags::RW.union(KeyFlags::INSERT))],
        arguments: &[Argument::key("key", 0), Argument::string("field"), Argument::string("value")],
        ..Spec::BLANK
    },
    run: Run::Keys(hsetnx),
};

fn hsetnx(cx: &mut Cx<'_, '_>) -> Result<Effect, Error> {
    let (field, value) = (cx.args.get(2).unwrap_or_default(), cx.args.get(3).unwrap_or_default());
    let hash = hash_value::peek(&mut cx.view, 0)?;
    let free = hash.is_none_or(|hash| hash.get(field).is_none());
    if free {
        let pair = std::iter::once((field, value));
        hash_update::set(&mut cx.view, 0, pair, FieldExpiry::Clear)?;
        cx.view.changed(0, Class::HASH, "hset");
    }
    cx.reply.integer(i64::from(free));
    Ok(Effect::given_if(free))
}

static HDEL: Command = Command {
    spec: Spec {
        name: "hdel",
        summary: "Deletes fields of a hash, and the hash with its last field.",
        since: "2.0.0",
        group: Group::Hash,
        complexity: "O(N) where N is the number of fields given.",
        arity: -3,
        flags: Flags::WRITE.union(Flags::FAST),
        keys: &[KeySpec::first(KeyFlags::RW.union(KeyFlags::DELETE))],
        history: &[("2.4.0", "Takes several `field`s.")],
        arguments: &[Argument::key("key", 0), Argument::string("field").multiple()],
        ..Spec::BLANK
    },
    run: Run::Keys(hdel),
};

fn hdel(cx: &mut Cx<'_, '_>) -> Result<Effect, Error> {
    let deleted = hash_update::delete(&mut cx.view, 0, cx.args.from(2).iter())?;
    if deleted > 0 {
        cx.view.shrunk(0, Class::HASH, "hdel");
    }
    cx.reply.integer(deleted as i64);
    Ok(Effect::given_if(deleted > 0))
}

#[cfg(test)]
mod tests {
    use kvasir_resp::reply::Protocol;

    use crate::effect::Effect;
    use crate::testing::events::check_events;
    use crate::testing::{Bench, check, check_ours, check3, split};

    const WRONG_TYPE: &str = "-WRONGTYPE Operation against a key holding the wrong kind of value";

    #[test]
    fn hset_counts_new_fields() {
        check("HSET h a 1 b 2; HSET h b 3 c 4; HGETALL h", ":2; :1; [$a $1 $b $3 $c $4]");
        check("HSET h a 1 a 2; HLEN h; HGET h a", ":1; :1; $2");
        check3("HMSET h a 1 b 2; HMSET h a 3; HGETALL h", "+OK; +OK; {$a $3 $b $2}");
        check("HSET h '' ''; HGETALL h; HSTRLEN h ''", ":1; [$ $]; :0");
        check(
            "HSET h 7 -9223372036854775808 007 +7; HGETALL h",
            ":2; [$7 $-9223372036854775808 $007 $+7]",
        );
        check(
            "HSET h f v; PEXPIREAT h 33177117420000; HSET h g w; PEXPIRETIME h",
            ":1; :1; :1; :33177117420000",
        );
    }

    #[test]
    fn hset_refuses() {
        check(
            "HSET h a; HSET h a 1 b; HMSET h a 1 b; HSETNX h a; HDEL h",
            "-ERR wrong number of arguments for 'hset' command; \
             -ERR wrong number of arguments for 'hset' command; \
             -ERR wrong number of arguments for 'hmset' command; \
             -ERR wrong number of arguments for 'hsetnx' command; \
             -ERR wrong number of arguments for 'hdel' command",
        );
        for call in ["HSET s a 1", "HMSET s a 1", "HSETNX s a 1", "HDEL s a"] {
            check(&format!("SET s v; {call}"), &format!("+OK; {WRONG_TYPE}"));
        }
        check("SET s v; HSET s a", "+OK; -ERR wrong number of arguments for 'hset' command");
    }

    #[test]
    fn hsetnx_sets_once() {
        check("HSETNX h a 1; HSETNX h a 2; HSETNX h b 3; HGETALL h", ":1; :0; :1; [$a $1 $b $3]");
    }

    #[test]
    fn hdel_ends_the_hash_with_its_last_field() {
        check("HSET h a 1 b 2; HDEL h a x a; HDEL h b; EXISTS h; HDEL h b", ":2; :1; :1; :0; :0");
        let long = "v".repeat(65);
        check(&format!("HSET h a {long} b 2; HDEL h a x a; HDEL h b; EXISTS h"), ":2; :1; :1; :0");
        check("HSET h a 1 b 2 c 3; HDEL h b; HGETALL h; HDEL none a", ":3; :1; [$a $1 $c $3]; :0");
    }

    #[test]
    fn encodings() {
        let (fits, long) = ("v".repeat(64), "v".repeat(65));
        let encoding = "OBJECT ENCODING h";
        check(&format!("HSET h {fits} {fits}; {encoding}"), ":1; $listpack");
        check(
            &format!("HSET h a {long}; {encoding}; HGET h a"),
            &format!(":1; $hashtable; ${long}"),
        );
        check(&format!("HSET h {long} a; {encoding}"), ":1; $hashtable");
        check(&format!("HSET h a 1; HSETNX h b {long}; {encoding}"), ":1; :1; $hashtable");
        check(&format!("HSET h a 1; HSETNX h a {long}; {encoding}"), ":1; :0; $listpack");
        check(
            &format!("HSET h a {long}; HSET h a 1; {encoding}; HGET h a"),
            ":1; :0; $hashtable; $1",
        );
        check(
            &format!("HSET h a {long}; HDEL h a; HSET h a 1; {encoding}"),
            ":1; :1; :1; $listpack",
        );
        let pairs = |count: usize| (0..count).map(|n| format!(" f{n} {n}")).collect::<String>();
        check(&format!("HSET h{}; {encoding}", pairs(512)), ":512; $listpack");
        check(&format!("HSET h{}; {encoding}; HLEN h", pairs(513)), ":513; $hashtable; :513");
        check(
            &format!(
                "HSET h{}; HSET h f7 x; {encoding}; HSET h g 1; {encoding}; HGET h f511",
                pairs(512)
            ),
            ":512; :0; $listpack; :1; $hashtable; $511",
        );
    }

    /// Redis keeps this one as a listpack: ours must fit into a record, which takes 64 KiB.
    #[test]
    fn a_listpack_ends_where_a_record_does() {
        let value = "v".repeat(64);
        let pairs: String = (0..512).map(|n| format!(" {n:064x} {value}")).collect();
        check_ours(&format!("HSET h{pairs}; OBJECT ENCODING h"), ":512; $hashtable");
    }

    #[test]
    fn the_log_gets_what_changed() {
        let mut bench = Bench::new(Protocol::Resp2);
        let mut effect = |call: &str| bench.call(split(call)[0].as_args()).1;
        for call in ["HSET h a 1", "HSET h a 1", "HMSET h b 1", "HSETNX h c 1", "HDEL h a x"] {
            assert_eq!(effect(call), Effect::AsGiven, "{call}");
        }
        for call in ["HSETNX h c 1", "HDEL h a x", "HDEL none a", "HSET h a"] {
            assert_eq!(effect(call), Effect::None, "{call}");
        }
    }

    #[test]
    fn values_of_any_length() {
        for len in [16_383, 16_384, 65_535, 65_536, 200_000] {
            let value = "x".repeat(len);
            check(
                &format!(
                    "HSET h f {value}; HSET h g {value}; HGET h f; HSTRLEN h g; HSET h f y; HGET h f"
                ),
                &format!(":1; :1; ${value}; :{len}; :0; $y"),
            );
        }
    }

    #[test]
    fn events_of_setting() {
        check_events(
            "HSET h a 1; HSET h a 1; HSET h a 1 b 2; HMSET h a 3; HSETNX h a 1; HSETNX h c 1; \
             HDEL h zz; HDEL h a b; HDEL h c n m; HDEL h c; HSETNX n a 1; HMSET m a 1; SET s v; \
             HSET s a 1; HDEL s a",
            "new h, hset h; hset h; hset h; hset h; ; hset h; ; hdel h; hdel h, del h; ; new n, \
             hset n; new m, hset m; new s, set s; ; ",
        );
    }
}
