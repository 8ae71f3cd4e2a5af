//! What any of several sets has: SUNION, SUNIONSTORE.

use std::ops::Range;

use super::intersect::store;
use crate::command::{Command, Cx, Run};
use crate::effect::Effect;
use crate::error::Error;
use crate::set_value::{self, Draft, Limits};
use crate::spec::{Argument, Flags, Group, KeyFlags, KeySpec, Spec};

pub static COMMANDS: &[&Command] = &[&SUNION, &SUNIONSTORE];

const COMPLEXITY: &str = "O(N) where N is the number of members of all sets together.";

static SUNION: Command = Command {
    spec: Spec {
        name: "sunion",
        summary: "Returns the members that any of several sets has.",
        since: "1.0.0",
        group: Group::Set,
        complexity: COMPLEXITY,
        arity: -2,
        flags: Flags::READONLY,
        keys: &[KeySpec::range(KeyFlags::RO.union(KeyFlags::ACCESS), 1, -1, 1)],
        tips: &["nondeterministic_output_order"],
        arguments: &[Argument::key("key", 0).multiple()],
        ..Spec::BLANK
    },
    run: Run::Keys(sunion),
};

fn sunion(cx: &mut Cx<'_, '_>) -> Result<Effect, Error> {
    let result = unite(cx, 0..cx.view.key_count())?;
    let members = result.view();
    cx.reply.set(members.len());
    members.for_each(|member| set_value::write(cx.reply, member));
    Ok(Effect::None)
}

static SUNIONSTORE: Command = Command {
    spec: Spec {
        name: "sunionstore",
        summary: "Sets a key to the members that any of several sets has.",
        since: "1.0.0",
        group: Group::Set,
        complexity: COMPLEXITY,
        arity: -3,
        flags: Flags::WRITE.union(Flags::DENYOOM),
        keys: &[
            KeySpec::first(KeyFlags::OW.union(KeyFlags::UPDATE)),
            KeySpec::range(KeyFlags::RO.union(KeyFlags::ACCESS), 2, -1, 1),
        ],
        arguments: &[Argument::key("destination", 0), Argument::key("key", 1).multiple()],
        ..Spec::BLANK
    },
    run: Run::Keys(sunionstore),
};

fn sunionstore(cx: &mut Cx<'_, '_>) -> Result<Effect, Error> {
    let result = unite(cx, 1..cx.view.key_count())?;
    Ok(store(cx, result, "sunionstore"))
}

fn unite(cx: &mut Cx<'_, '_>, keys: Range<usize>) -> Result<Draft, Error> {
    let mut result = Draft::new(Limits::of(cx.view.env));
    for set in set_value::read_all(&mut cx.view, keys)?.into_iter().flatten() {
        set.for_each(|member| {
            result.add(member);
        });
    }
    Ok(result)
}

#[cfg(test)]
mod tests {
    use kvasir_resp::reply::Protocol;

    use crate::effect::Effect;
    use crate::testing::events::check_events;
    use crate::testing::{Bench, check, check_valkey, check_valkey3, check3, split};

    const WRONG_TYPE: &str = "-WRONGTYPE Operation against a key holding the wrong kind of value";

    #[test]
    fn sunion_of_each_encoding() {
        check("SADD a 5 1; SADD b 3 1; SUNION a b; SUNION a none", ":2; :2; [$1 $3 $5]; [$1 $5]");
        check3("SADD a 1; SADD b 2; SUNION a b; SUNION none", ":1; :1; ~[$1 $2]; ~[]");
        check_valkey3("SADD a b 1; SADD b 9; SUNION a b", ":2; :1; ~[$b $1 $9]");
        check_valkey(
            "SADD a b 1; SADD b 9 7; SUNION a b; SUNION b a; SUNION a a",
            ":2; :2; [$b $1 $7 $9]; [$7 $9 $b $1]; [$b $1]",
        );
        let long = "m".repeat(65);
        check(&format!("SADD a {long}; SUNION a a none"), &format!(":1; [${long}]"));
        check("SUNION none; SUNION none none", "[]; []");
    }

    #[test]
    fn sunionstore_replaces() {
        check(
            "SADD a 1 2; SADD b 3; SET d v; SUNIONSTORE d a b; SMEMBERS d; SUNIONSTORE b b a; \
             SMEMBERS b",
            ":2; :1; +OK; :3; [$1 $2 $3]; :3; [$1 $2 $3]",
        );
        check(
            "SADD a 1; SADD d 7; EXPIRE d 100; SUNIONSTORE d a; TTL d; SUNIONSTORE d none; EXISTS d",
            ":1; :1; :1; :1; :-1; :0; :0",
        );
        check_valkey(
            "SADD a 1 2; SADD b b 1; SUNIONSTORE d a b; OBJECT ENCODING d; SMEMBERS d",
            ":2; :2; :3; $listpack; [$1 $2 $b]",
        );
        let (low, high) = (0..100, 100..129);
        let [low, high] = [low, high].map(|ints| ints.map(|n| format!(" {n}")).collect::<String>());
        check_valkey(
            &format!("SADD a{low} a; SADD b{high}; SUNIONSTORE d a b; OBJECT ENCODING d; SCARD d"),
            ":101; :29; :130; $hashtable; :130",
        );
        check_valkey(
            &format!("SADD a{low}; SADD b{high}; SUNIONSTORE d a b; OBJECT ENCODING d; SCARD d"),
            ":100; :29; :129; $intset; :129",
        );
    }

    #[test]
    fn refuses() {
        for call in ["SUNION t a", "SUNION a t", "SUNION none t"] {
            check(&format!("SET t v; SADD a 1; {call}"), &format!("+OK; :1; {WRONG_TYPE}"));
            let store = call.replace("SUNION ", "SUNIONSTORE d ");
            check(
                &format!("SET t v; SADD a 1; SADD d 7; {store}; SMEMBERS d"),
                &format!("+OK; :1; :1; {WRONG_TYPE}; [$7]"),
            );
        }
        check(
            "SUNION; SUNIONSTORE d",
            "-ERR wrong number of arguments for 'sunion' command; \
             -ERR wrong number of arguments for 'sunionstore' command",
        );
    }

    #[test]
    fn the_log_gets_what_changed() {
        let mut bench = Bench::new(Protocol::Resp2);
        let mut effect = |call: &str| bench.call(split(call)[0].as_args()).1;
        for call in ["SADD a 1 2", "SUNIONSTORE d a", "SUNIONSTORE d none"] {
            assert_eq!(effect(call), Effect::AsGiven, "{call}");
        }
        for call in ["SUNIONSTORE d none", "SUNION a"] {
            assert_eq!(effect(call), Effect::None, "{call}");
        }
    }

    #[test]
    fn events_of_storing() {
        check_events(
            "SADD a 1 2; SADD b 2 3; SUNIONSTORE d a b; SUNIONSTORE d none k; SUNIONSTORE d none \
             k; SUNION none a; SUNIONSTORE a a b",
            "new a, sadd a; new b, sadd b; new d, sunionstore d; keymiss none, keymiss k, del d; \
             keymiss none, keymiss k; keymiss none; sunionstore a",
        );
        // What stands behind a key of another type is not looked for.
        check_events(
            "SET t v; SUNION k t none; ZUNION 3 k t none",
            "new t, set t; keymiss k; keymiss k",
        );
    }
}
