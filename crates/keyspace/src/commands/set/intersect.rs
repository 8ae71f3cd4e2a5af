//! What sets have in common: SINTER, SINTERSTORE, SINTERCARD.

use std::ops::ControlFlow;

use kvasir_resp::args::Args;

use crate::command::{Command, Cx, Run};
use crate::commands::options::integer;
use crate::effect::Effect;
use crate::error::Error;
use crate::event::Class;
use crate::set_probe::Probe;
use crate::set_value::{self, Draft, Limits, Member, Set};
use crate::spec::{Argument, Begin, Find, Flags, Group, KeyFlags, KeySpec, Spec};

pub static COMMANDS: &[&Command] = &[&SINTER, &SINTERSTORE, &SINTERCARD];

const COMPLEXITY: &str =
    "O(N*M) where N is the number of members of the smallest set and M the number of sets.";

static SINTER: Command = Command {
    spec: Spec {
        name: "sinter",
        summary: "Returns the members that all of several sets have.",
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
    run: Run::Keys(sinter),
};

fn sinter(cx: &mut Cx<'_, '_>) -> Result<Effect, Error> {
    let keys = 0..cx.view.key_count();
    let sets = set_value::read_all(&mut cx.view, keys)?;
    let (header, mut count) = (cx.reply.deferred_set(), 0);
    intersect(sets, |member| {
        set_value::write(cx.reply, member);
        count += 1;
        ControlFlow::Continue(())
    });
    cx.reply.set_count(header, count);
    Ok(Effect::None)
}

static SINTERSTORE: Command = Command {
    spec: Spec {
        name: "sinterstore",
        summary: "Sets a key to the members that all of several sets have.",
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
    run: Run::Keys(sinterstore),
};

fn sinterstore(cx: &mut Cx<'_, '_>) -> Result<Effect, Error> {
    let limits = Limits::of(cx.view.env);
    let keys = 1..cx.view.key_count();
    let sets = set_value::read_all(&mut cx.view, keys)?;
    let smallest = sets.iter().flatten().min_by_key(|set| set.len());
    let mut result = Draft::of_members_of(smallest, limits);
    intersect(sets, |member| {
        result.add(member);
        ControlFlow::Continue(())
    });
    Ok(store(cx, result.settled(), "sinterstore"))
}

/// Sets the first key to a result, as the event of this name, and replies its size.
pub fn store(cx: &mut Cx<'_, '_>, result: Draft, event: &'static str) -> Effect {
    if result.is_empty() {
        cx.reply.integer(0);
        return Effect::given_if(cx.view.delete_for_nothing(0));
    }
    let len = result.put(&mut cx.view, 0);
    cx.view.changed(0, Class::SET, event);
    cx.reply.integer(len as i64);
    Effect::AsGiven
}

static SINTERCARD: Command = Command {
    spec: Spec {
        name: "sintercard",
        summary: "Counts the members that all of several sets have.",
        since: "7.0.0",
        group: Group::Set,
        complexity: COMPLEXITY,
        arity: -3,
        flags: Flags::READONLY.union(Flags::MOVABLEKEYS),
        keys: &[KeySpec {
            flags: KeyFlags::RO.union(KeyFlags::ACCESS),
            notes: None,
            begin: Begin::Index(1),
            find: Find::Count { count: 0, first: 1, step: 1 },
        }],
        arguments: &[
            Argument::integer("numkeys"),
            Argument::key("key", 0).multiple(),
            Argument::integer("limit").token("LIMIT").optional(),
        ],
        ..Spec::BLANK
    },
    run: Run::Keys(sintercard),
};

fn sintercard(cx: &mut Cx<'_, '_>) -> Result<Effect, Error> {
    let key_count = key_count(cx.args)?;
    let limit = limit(cx.args.from(2 + key_count))?;
    let mut count = 0;
    intersect(set_value::read_all(&mut cx.view, 0..key_count)?, |_| {
        count += 1;
        if count == limit { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    });
    cx.reply.integer(count);
    Ok(Effect::None)
}

fn key_count(args: Args<'_>) -> Result<usize, Error> {
    let too_small = Error::fixed("ERR numkeys should be greater than 0");
    let count = integer(&args[1]).ok().filter(|count| *count > 0).ok_or(too_small)? as usize;
    if count > args.len() - 2 {
        return Err(Error::fixed("ERR Number of keys can't be greater than number of args"));
    }
    Ok(count)
}

/// LIMIT's value, the last one if there are several; 0 is none.
fn limit(args: Args<'_>) -> Result<i64, Error> {
    let (mut words, mut limit) = (args.iter(), 0);
    while let Some(word) = words.next() {
        let value = words.next().filter(|_| word.eq_ignore_ascii_case(b"limit"));
        let value = integer(value.ok_or(Error::SYNTAX)?).ok().filter(|value| *value >= 0);
        limit = value.ok_or(Error::fixed("ERR LIMIT can't be negative"))?;
    }
    Ok(limit)
}

/// Calls `f` with the members that all sets have, in the order of the smallest, until it breaks.
fn intersect<'a>(sets: Vec<Option<Set<'a>>>, mut f: impl FnMut(Member<'a>) -> ControlFlow<()>) {
    let Some(mut sets) = sets.into_iter().collect::<Option<Vec<_>>>() else { return };
    sets.sort_by_key(|set| set.len());
    let Some((smallest, others)) = sets.split_first() else { return };
    let probe = |other: &Set<'a>| Probe::new(*other, smallest.len());
    let others: Vec<_> = others.iter().map(probe).collect();
    let _ = smallest.try_for_each(|member| {
        if others.iter().all(|other| other.contains(member)) {
            f(member)
        } else {
            ControlFlow::Continue(())
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
    fn sinter_of_each_encoding() {
        check("SADD a 1 2 3 9; SADD b 3 1 7; SINTER a b; SINTER b", ":4; :3; [$1 $3]; [$1 $3 $7]");
        check3("SADD a 1 2; SADD b 2 3; SINTER a b; SINTER a none", ":2; :2; ~[$2]; ~[]");
        check_valkey(
            "SADD a z 2 1; SADD b x 1 2 5; SINTER b a; SINTER a b",
            ":3; :4; [$2 $1]; [$2 $1]",
        );
        check_valkey(
            "SADD a a 9 7; SADD b 7 9 8; SINTER a b; SINTER b a; SINTER a b a",
            ":3; :3; [$9 $7]; [$7 $9]; [$9 $7]",
        );
        let long = "m".repeat(65);
        check(
            &format!("SADD a {long} 1; SADD b {long} 2 3; SADD c 1; SINTER a b; SINTER a c"),
            &format!(":2; :3; :1; [${long}]; [$1]"),
        );
        check("SINTER none; SADD a 1; SINTER a none; SINTER a a", "[]; :1; []; [$1]");
    }

    #[test]
    fn sinterstore_replaces() {
        check(
            "SADD a 1 2 3; SADD b 3 2; SET d v; SINTERSTORE d a b; SMEMBERS d; SINTERSTORE a a b; \
             SMEMBERS a",
            ":3; :2; +OK; :2; [$2 $3]; :2; [$2 $3]",
        );
        check(
            "SADD a 1; SADD d 7; EXPIRE d 100; SINTERSTORE d a; TTL d; SINTERSTORE d a none; EXISTS d",
            ":1; :1; :1; :1; :-1; :0; :0",
        );
        check("SINTERSTORE d none; EXISTS d", ":0; :0");
    }

    #[test]
    fn sinterstore_takes_the_form_that_fits() {
        let encoding = "OBJECT ENCODING d; SMEMBERS d";
        check_valkey(
            &format!("SADD a a 2 1; SADD b z 1 2; SINTERSTORE d a b; {encoding}"),
            ":3; :3; :2; $intset; [$1 $2]",
        );
        check_valkey(
            &format!("SADD a 1 b a; SADD b b z 1; SINTERSTORE d a b; {encoding}"),
            ":3; :3; :2; $listpack; [$1 $b]",
        );
        let ints: String = (0..513).map(|n| format!(" {n}")).collect();
        check_valkey(
            &format!("SADD a{ints}; SINTERSTORE d a; OBJECT ENCODING d; SCARD d"),
            ":513; :513; $hashtable; :513",
        );
        // More than a listpack may have, of an intset and of a table.
        let ints: String = (0..200).map(|n| format!(" {n}")).collect();
        check_valkey(
            &format!("SADD a{ints}; SADD b{ints} x; SINTERSTORE d a b; OBJECT ENCODING d"),
            ":200; :201; :200; $intset",
        );
        check_valkey(
            &format!("SADD a{ints} y; SADD b{ints} x; SINTERSTORE d a b; OBJECT ENCODING d"),
            ":201; :201; :200; $intset",
        );
    }

    #[test]
    fn sinterstore_takes_what_was_no_intset_for_a_listpack_first() {
        let mut bench = Bench::new(Protocol::Resp2);
        bench.env.set_intset_entries_max = 2;
        bench.env.set_listpack_entries_max = 4;
        let mut encoding_of = |members: &str| {
            for call in ["DEL a", &format!("SADD a {members}"), "SINTERSTORE d a"] {
                bench.call(split(call)[0].as_args());
            }
            let (reply, _) = bench.call(split("OBJECT ENCODING d")[0].as_args());
            String::from_utf8(reply).unwrap().lines().nth(1).unwrap().to_string()
        };
        assert_eq!(encoding_of("1 2"), "intset");
        // More integers than an intset may have make a table, but what is stored of it is less.
        assert_eq!(encoding_of("1 2 3"), "listpack");
        assert_eq!(encoding_of("1 2 x"), "listpack");
        assert_eq!(encoding_of("1 2 3 4 5"), "hashtable");
    }

    #[test]
    fn sintercard_counts_up_to_a_limit() {
        check(
            "SADD a 1 2 3; SADD b 3 2 7; SINTERCARD 2 a b; SINTERCARD 2 a b LIMIT 1; \
             SINTERCARD 2 a b limit 0; SINTERCARD 1 a LIMIT 9; SINTERCARD 2 a none; \
             SINTERCARD 1 a LIMIT 1 LIMIT 2",
            ":3; :3; :2; :1; :2; :3; :0; :2",
        );
    }

    #[test]
    fn refuses() {
        for call in ["SINTER t a", "SINTER a t", "SINTER none t", "SINTER t none"] {
            check(&format!("SET t v; SADD a 1; {call}"), &format!("+OK; :1; {WRONG_TYPE}"));
            let store = call.replace("SINTER ", "SINTERSTORE d ");
            check(
                &format!("SET t v; SADD a 1; SADD d 7; {store}; SMEMBERS d"),
                &format!("+OK; :1; :1; {WRONG_TYPE}; [$7]"),
            );
            let card = call.replace("SINTER ", "SINTERCARD 2 ");
            check(&format!("SET t v; SADD a 1; {card}"), &format!("+OK; :1; {WRONG_TYPE}"));
        }
        check(
            "SINTER; SINTERSTORE d; SINTERCARD 1",
            "-ERR wrong number of arguments for 'sinter' command; \
             -ERR wrong number of arguments for 'sinterstore' command; \
             -ERR wrong number of arguments for 'sintercard' command",
        );
        let too_small = "-ERR numkeys should be greater than 0";
        check(
            "SINTERCARD 0 a; SINTERCARD -1 a; SINTERCARD x a; SINTERCARD 9223372036854775808 a",
            &format!("{too_small}; {too_small}; {too_small}; {too_small}"),
        );
        let (syntax, negative) = ("-ERR syntax error", "-ERR LIMIT can't be negative");
        check(
            "SET t v; SINTERCARD 9223372036854775807 a; SINTERCARD 1 a FOO; SINTERCARD 1 a LIMIT; \
             SINTERCARD 1 a LIMIT -1; SINTERCARD 1 t LIMIT x; SINTERCARD 1 a FOO 1",
            &format!(
                "+OK; -ERR Number of keys can't be greater than number of args; {syntax}; {syntax}; \
                 {negative}; {negative}; {syntax}"
            ),
        );
    }

    #[test]
    fn the_log_gets_what_changed() {
        let mut bench = Bench::new(Protocol::Resp2);
        let mut effect = |call: &str| bench.call(split(call)[0].as_args()).1;
        for call in ["SADD a 1 2", "SINTERSTORE d a", "SINTERSTORE d none"] {
            assert_eq!(effect(call), Effect::AsGiven, "{call}");
        }
        for call in ["SINTERSTORE d none", "SINTER a", "SINTERCARD 1 a"] {
            assert_eq!(effect(call), Effect::None, "{call}");
        }
    }

    #[test]
    fn events_of_storing() {
        check_events(
            "SADD a 1 2; SADD b 2 3; SINTERSTORE d a b; SINTERSTORE d a b; SINTERSTORE d a none; \
             SINTERSTORE d none a; SET d v; SINTERSTORE d a b; SINTERSTORE a a b",
            "new a, sadd a; new b, sadd b; new d, sinterstore d; sinterstore d; keymiss none, \
             del d; keymiss none; new d, set d; sinterstore d; sinterstore a",
        );
        check_events(
            "SINTER k l; SADD k a; SINTER l k; SINTERCARD 2 k l; SINTERCARD 2 l k; SINTER k l k l",
            "keymiss k, keymiss l; new k, sadd k; keymiss l; keymiss l; keymiss l; keymiss l, \
             keymiss l",
        );
    }
}
