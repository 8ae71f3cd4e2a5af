//! Adding, removing and moving members: SADD, SREM, SMOVE.

use std::iter;

use crate::command::{Command, Cx, Run};
use crate::effect::Effect;
use crate::error::Error;
use crate::event::Class;
use crate::set_value::{self, Member};
use crate::spec::{Argument, Flags, Group, KeyFlags, KeySpec, Spec};
use crate::value::Kind;

pub static COMMANDS: &[&Command] = &[&SADD, &SREM, &SMOVE];

const KEY_AND_MEMBERS: &[Argument] =
    &[Argument::key("key", 0), Argument::string("member").multiple()];

static SADD: Command = Command {
    spec: Spec {
        name: "sadd",
        summary: "Adds members to a set, which is created if the key is free.",
        since: "1.0.0",
        group: Group::Set,
        complexity: "O(N) where N is the number of members given, so O(1) for one.",
        arity: -3,
        flags: Flags::WRITE.union(Flags::DENYOOM).union(Flags::FAST),
        keys: &[KeySpec::first(KeyFlags::RW.union(KeyFlags::INSERT))],
        history: &[("2.4.0", "Takes several `member`s.")],
        arguments: KEY_AND_MEMBERS,
        ..Spec::BLANK
    },
    run: Run::Keys(sadd),
};

fn sadd(cx: &mut Cx<'_, '_>) -> Result<Effect, Error> {
    let added = set_value::add(&mut cx.view, 0, cx.args.from(2).iter())?;
    if added > 0 {
        cx.view.changed(0, Class::SET, "sadd");
    }
    cx.reply.integer(added as i64);
    Ok(Effect::given_if(added > 0))
}

static SREM: Command = Command {
    spec: Spec {
        name: "srem",
        summary: "Removes members from a set, and the set with its last member.",
        since: "1.0.0",
        group: Group::Set,
        complexity: "O(N) where N is the number of members given.",
        arity: -3,
        flags: Flags::WRITE.union(Flags::FAST),
        keys: &[KeySpec::first(KeyFlags::RW.union(KeyFlags::DELETE))],
        history: &[("2.4.0", "Takes several `member`s.")],
        arguments: KEY_AND_MEMBERS,
        ..Spec::BLANK
    },
    run: Run::Keys(srem),
};

fn srem(cx: &mut Cx<'_, '_>) -> Result<Effect, Error> {
    let removed = set_value::remove(&mut cx.view, 0, cx.args.from(2).iter())?;
    if removed > 0 {
        cx.view.shrunk(0, Class::SET, "srem");
    }
    cx.reply.integer(removed as i64);
    Ok(Effect::given_if(removed > 0))
}

static SMOVE: Command = Command {
    spec: Spec {
        name: "smove",
        summary: "Moves a member from one set to another.",
        since: "1.0.0",
        group: Group::Set,
        complexity: "O(1)",
        arity: 4,
        flags: Flags::WRITE.union(Flags::FAST),
        keys: &[
            KeySpec::first(KeyFlags::RW.union(KeyFlags::ACCESS).union(KeyFlags::DELETE)),
            KeySpec::range(KeyFlags::RW.union(KeyFlags::INSERT), 2, 0, 1),
        ],
        arguments: &[
            Argument::key("source", 0),
            Argument::key("destination", 1),
            Argument::string("member"),
        ],
        ..Spec::BLANK
    },
    run: Run::Keys(smove),
};

fn smove(cx: &mut Cx<'_, '_>) -> Result<Effect, Error> {
    let member = &cx.args[3];
    // A free source ends it, whatever the destination holds.
    let source = set_value::peek(&mut cx.view, 0)?;
    let Some(is_there) = source.map(|source| source.contains(Member::Bytes(member))) else {
        cx.reply.integer(0);
        return Ok(Effect::None);
    };
    cx.view.expect_kind(1, Kind::Set)?;
    cx.reply.integer(i64::from(is_there));
    if !is_there || cx.args[1] == cx.args[2] {
        return Ok(Effect::None);
    }
    set_value::remove(&mut cx.view, 0, iter::once(member))?;
    cx.view.shrunk(0, Class::SET, "srem");
    if set_value::add(&mut cx.view, 1, iter::once(member))? > 0 {
        cx.view.changed(1, Class::SET, "sadd");
    }
    Ok(Effect::AsGiven)
}

#[cfg(test)]
mod tests {
    use kvasir_resp::reply::Protocol;

    use crate::effect::Effect;
    use crate::testing::events::check_events;
    use crate::testing::{Bench, check, check_valkey, check3, split};

    const WRONG_TYPE: &str = "-WRONGTYPE Operation against a key holding the wrong kind of value";

    #[test]
    fn sadd_counts_new_members() {
        check("SADD s 3 1 2 1; SADD s 2 4; SMEMBERS s", ":3; :1; [$1 $2 $3 $4]");
        check3("SADD s a a; SADD s a; SMEMBERS s", ":1; :0; ~[$a]");
        check_valkey("SADD s b a b; SADD s a 1; SMEMBERS s", ":2; :1; [$b $a $1]");
        check("SADD s ''; SMEMBERS s; SISMEMBER s ''", ":1; [$]; :1");
        check(
            "SADD s -9223372036854775808 9223372036854775807 0; SMEMBERS s",
            ":3; [$-9223372036854775808 $0 $9223372036854775807]",
        );
        check(
            "SADD s a; PEXPIREAT s 33177117420000; SADD s b; PEXPIRETIME s",
            ":1; :1; :1; :33177117420000",
        );
    }

    #[test]
    fn srem_ends_the_set_with_its_last_member() {
        check(
            "SADD s 1 2 3; SREM s 2 9 2 x; SMEMBERS s; SREM s 1 3; EXISTS s",
            ":3; :1; [$1 $3]; :2; :0",
        );
        check("SADD s a; SREM s b 1; SREM s a; EXISTS s; SREM s a", ":1; :0; :1; :0; :0");
        check_valkey("SADD s a b 7; SREM s a 7; SMEMBERS s", ":3; :2; [$b]");
        let long = "m".repeat(65);
        check(&format!("SADD s {long} b; SREM s b b x; SREM s {long}; EXISTS s"), ":2; :1; :1; :0");
    }

    #[test]
    fn smove_moves() {
        check(
            "SADD s 1 2; SADD d 3; SMOVE s d 1; SMOVE s d 1; SMEMBERS s; SMEMBERS d",
            ":2; :1; :1; :0; [$2]; [$1 $3]",
        );
        check("SADD s a; SMOVE s d a; EXISTS s; SMEMBERS d", ":1; :1; :0; [$a]");
        check("SADD s a; SADD d a; SMOVE s d a; EXISTS s; SMEMBERS d", ":1; :1; :1; :0; [$a]");
        check("SADD s a; SMOVE s s a; SMOVE s s b; SMEMBERS s", ":1; :1; :0; [$a]");
        check("SMOVE none d a; EXISTS d", ":0; :0");
    }

    #[test]
    fn refuses() {
        check(
            "SADD s; SREM s; SMOVE s d; SMOVE s d a b",
            "-ERR wrong number of arguments for 'sadd' command; \
             -ERR wrong number of arguments for 'srem' command; \
             -ERR wrong number of arguments for 'smove' command; \
             -ERR wrong number of arguments for 'smove' command",
        );
        for call in
            ["SADD t a", "SREM t a", "SMOVE t s a", "SMOVE s t a", "SMOVE s t b", "SMOVE t t a"]
        {
            check(
                &format!("SET t v; SADD s a; {call}; SMEMBERS s"),
                &format!("+OK; :1; {WRONG_TYPE}; [$a]"),
            );
        }
        check("SET t v; SMOVE none t a", "+OK; :0");
    }

    #[test]
    fn the_log_gets_what_changed() {
        let mut bench = Bench::new(Protocol::Resp2);
        let mut effect = |call: &str| bench.call(split(call)[0].as_args()).1;
        for call in ["SADD s a b", "SADD s a c", "SREM s a x", "SMOVE s d b"] {
            assert_eq!(effect(call), Effect::AsGiven, "{call}");
        }
        for call in
            ["SADD s c", "SREM s a x", "SREM none a", "SMOVE s d b", "SMOVE s s c", "SADD s"]
        {
            assert_eq!(effect(call), Effect::None, "{call}");
        }
    }

    #[test]
    fn events_of_changes() {
        check_events(
            "SADD s a; SADD s a; SADD s a b; SREM s z; SREM s a z; SREM s b; SREM s b; SET k v; \
             SADD k a; SREM k a",
            "new s, sadd s; ; sadd s; ; srem s; srem s, del s; ; new k, set k; ; ",
        );
        check_events(
            "SADD s a b c; SMOVE s t a; SMOVE s t z; SMOVE s s b; SADD t b; SMOVE s t b; SMOVE s \
             t c; SMOVE none t a; SMOVE t t z",
            "new s, sadd s; srem s, new t, sadd t; ; ; sadd t; srem s; srem s, del s, sadd t; ; ",
        );
    }
}
