//! What a set has and others have not: SDIFF, SDIFFSTORE.

use super::intersect::store;
use crate::command::{Command, Cx, Run};
use crate::effect::Effect;
use crate::error::Error;
use crate::set_probe::Probe;
use crate::set_value::{self, Draft, Limits, Member, Set};
use crate::spec::{Argument, Flags, Group, KeyFlags, KeySpec, Spec};

pub static COMMANDS: &[&Command] = &[&SDIFF, &SDIFFSTORE];

const COMPLEXITY: &str =
    "O(N*M) where N is the number of members of the first set and M the number of sets.";

static SDIFF: Command = Command {
    spec: Spec {
        name: "sdiff",
        summary: "Returns the members of a set that no other of several sets has.",
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
    run: Run::Keys(sdiff),
};

fn sdiff(cx: &mut Cx<'_, '_>) -> Result<Effect, Error> {
    let keys = 0..cx.view.key_count();
    let sets = set_value::read_all(&mut cx.view, keys)?;
    let (header, mut count) = (cx.reply.deferred_set(), 0);
    subtract(&sets, |member| {
        set_value::write(cx.reply, member);
        count += 1;
    });
    cx.reply.set_count(header, count);
    Ok(Effect::None)
}

static SDIFFSTORE: Command = Command {
    spec: Spec {
        name: "sdiffstore",
        summary: "Sets a key to the members of a set that no other of several sets has.",
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
    run: Run::Keys(sdiffstore),
};

fn sdiffstore(cx: &mut Cx<'_, '_>) -> Result<Effect, Error> {
    let mut result = Draft::new(Limits::of(cx.view.env));
    let keys = 1..cx.view.key_count();
    subtract(&set_value::read_all(&mut cx.view, keys)?, |member| {
        result.add(member);
    });
    Ok(store(cx, result, "sdiffstore"))
}

/// Calls `f` with the members of the first set that no other has, in their order.
fn subtract<'a>(sets: &[Option<Set<'a>>], mut f: impl FnMut(Member<'a>)) {
    let Some((Some(first), others)) = sets.split_first() else { return };
    let mut others: Vec<_> = others.iter().flatten().collect();
    // The largest is the likeliest to have a member.
    others.sort_by_key(|other| std::cmp::Reverse(other.len()));
    let probe = |other: &Set<'a>| Probe::new(*other, first.len());
    let others: Vec<_> = others.into_iter().map(probe).collect();
    first.for_each(|member| {
        if !others.iter().any(|other| other.contains(member)) {
            f(member);
        }
    });
}

#[cfg(test)]
mod tests {
    use kvasir_resp::reply::Protocol;

    use crate::effect::Effect;
    use crate::testing::events::check_events;
    use crate::testing::{Bench, check, check_valkey, check3, split};

    const WRONG_TYPE: &str = "-WRONGTYPE Operation against a key holding the wrong kind of value";

    #[test]
    fn sdiff_of_each_encoding() {
        check(
            "SADD a 5 1 9; SADD b 3 1; SDIFF a b; SDIFF a none; SDIFF none a; SDIFF a a; SDIFF b a",
            ":3; :2; [$5 $9]; [$1 $5 $9]; []; []; [$3]",
        );
        check3("SADD a 1 2; SADD b 2; SDIFF a b; SDIFF none", ":2; :1; ~[$1]; ~[]");
        check_valkey("SADD a b 2 1; SADD b b 9; SDIFF a b; SDIFF b a", ":3; :2; [$2 $1]; [$9]");
        let long = "m".repeat(65);
        check(
            &format!("SADD a {long} 1 2; SADD b 1; SADD c {long} 7; SDIFF a b c; SDIFF c b a"),
            ":3; :1; :2; [$2]; [$7]",
        );
    }

    #[test]
    fn sdiffstore_replaces() {
        check(
            "SADD a 1 2 3; SADD b 3; SET d v; SDIFFSTORE d a b; SMEMBERS d; SDIFFSTORE a a b; \
             SMEMBERS a",
            ":3; :1; +OK; :2; [$1 $2]; :2; [$1 $2]",
        );
        check(
            "SADD a 1; SADD d 7; EXPIRE d 100; SDIFFSTORE d a; TTL d; SDIFFSTORE d a a; EXISTS d",
            ":1; :1; :1; :1; :-1; :0; :0",
        );
        let long = "m".repeat(65);
        check_valkey(
            &format!(
                "SADD a {long} 2 1; SADD b {long}; SDIFFSTORE d a b; OBJECT ENCODING d; SMEMBERS d; \
                 SDIFFSTORE d a none; OBJECT ENCODING d"
            ),
            ":3; :1; :2; $intset; [$1 $2]; :3; $hashtable",
        );
    }

    #[test]
    fn refuses() {
        for call in ["SDIFF t a", "SDIFF a t", "SDIFF none t"] {
            check(&format!("SET t v; SADD a 1; {call}"), &format!("+OK; :1; {WRONG_TYPE}"));
            let store = call.replace("SDIFF ", "SDIFFSTORE d ");
            check(
                &format!("SET t v; SADD a 1; SADD d 7; {store}; SMEMBERS d"),
                &format!("+OK; :1; :1; {WRONG_TYPE}; [$7]"),
            );
        }
        check(
            "SDIFF; SDIFFSTORE d",
            "-ERR wrong number of arguments for 'sdiff' command; \
             -ERR wrong number of arguments for 'sdiffstore' command",
        );
    }

    #[test]
    fn the_log_gets_what_changed() {
        let mut bench = Bench::new(Protocol::Resp2);
        let mut effect = |call: &str| bench.call(split(call)[0].as_args()).1;
        for call in ["SADD a 1 2", "SDIFFSTORE d a", "SDIFFSTORE d a a"] {
            assert_eq!(effect(call), Effect::AsGiven, "{call}");
        }
        for call in ["SDIFFSTORE d a a", "SDIFF a"] {
            assert_eq!(effect(call), Effect::None, "{call}");
        }
    }

    #[test]
    fn events_of_storing() {
        check_events(
            "SADD a 1 2; SADD b 2 3; SDIFFSTORE d a b; SDIFFSTORE d a none; SDIFFSTORE d none a; \
             SDIFFSTORE d a a; SDIFF none a; SDIFFSTORE a a b",
            "new a, sadd a; new b, sadd b; new d, sdiffstore d; keymiss none, sdiffstore d; \
             keymiss none, del d; ; keymiss none; sdiffstore a",
        );
    }
}
