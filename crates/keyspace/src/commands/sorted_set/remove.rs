//! Removing members: ZREM, ZREMRANGEBYRANK, ZREMRANGEBYSCORE, ZREMRANGEBYLEX.

use std::ops::Range;

use crate::command::{Command, Cx, Run};
use crate::commands::options::integer;
use crate::commands::sorted_set::bounds;
use crate::effect::Effect;
use crate::error::Error;
use crate::event::Class;
use crate::sorted_set_value::{self, Direction, Expected, SortedSet};
use crate::spec::{Argument, ArgumentKind, Flags, Group, KeyFlags, KeySpec, Spec};

pub static COMMANDS: &[&Command] = &[&ZREM, &ZREMRANGEBYRANK, &ZREMRANGEBYSCORE, &ZREMRANGEBYLEX];

const DELETES: &[KeySpec] = &[KeySpec::first(KeyFlags::RW.union(KeyFlags::DELETE))];

static ZREM: Command = Command {
    spec: Spec {
        name: "zrem",
        summary: "Removes members of a sorted set, and the set with its last member.",
        since: "1.2.0",
        group: Group::SortedSet,
        complexity: "O(M*log(N)) where N is the size of the sorted set and M the number of members \
                     given.",
        arity: -3,
        flags: Flags::WRITE.union(Flags::FAST),
        keys: DELETES,
        history: &[("2.4.0", "Takes several members.")],
        arguments: &[Argument::key("key", 0), Argument::string("member").multiple()],
        ..Spec::BLANK
    },
    run: Run::Keys(|cx| {
        let members = cx.args.from(2);
        let removed = sorted_set_value::edit(&mut cx.view, 0, Expected::default(), |set| {
            members.iter().filter(|member| set.remove(member).is_some()).count()
        })?;
        Ok(finish(cx, removed, "zrem"))
    }),
};

const RANGE_COMPLEXITY: &str =
    "O(M*log(N)) where N is the size of the sorted set and M the number of members removed.";

static ZREMRANGEBYRANK: Command = Command {
    spec: Spec {
        name: "zremrangebyrank",
        summary: "Removes the members of a range of ranks.",
        since: "2.0.0",
        group: Group::SortedSet,
        complexity: RANGE_COMPLEXITY,
        arity: 4,
        flags: Flags::WRITE,
        keys: DELETES,
        arguments: &[
            Argument::key("key", 0),
            Argument::integer("start"),
            Argument::integer("stop"),
        ],
        ..Spec::BLANK
    },
    run: Run::Keys(|cx| {
        let (start, stop) = (integer(&cx.args[2])?, integer(&cx.args[3])?);
        remove(cx, "zremrangebyrank", |set| bounds::rank_range(start, stop, set.len()))
    }),
};

static ZREMRANGEBYSCORE: Command = Command {
    spec: Spec {
        name: "zremrangebyscore",
        summary: "Removes the members whose scores are in a range.",
        since: "1.2.0",
        group: Group::SortedSet,
        complexity: RANGE_COMPLEXITY,
        arity: 4,
        flags: Flags::WRITE,
        keys: DELETES,
        arguments: &[
            Argument::key("key", 0),
            Argument::new("min", ArgumentKind::Double),
            Argument::new("max", ArgumentKind::Double),
        ],
        ..Spec::BLANK
    },
    run: Run::Keys(|cx| {
        let range = bounds::score_range(&cx.args[2], &cx.args[3])?;
        remove(cx, "zremrangebyscore", |set| set.ranks_by_score(range))
    }),
};

static ZREMRANGEBYLEX: Command = Command {
    spec: Spec {
        name: "zremrangebylex",
        summary: "Removes the members between two others, where all scores are the same.",
        since: "2.8.9",
        group: Group::SortedSet,
        complexity: RANGE_COMPLEXITY,
        arity: 4,
        flags: Flags::WRITE,
        keys: DELETES,
        arguments: &[Argument::key("key", 0), Argument::string("min"), Argument::string("max")],
        ..Spec::BLANK
    },
    run: Run::Keys(|cx| {
        let args = cx.args;
        let range = bounds::lex_range(&args[2], &args[3])?;
        remove(cx, "zremrangebylex", |set| set.ranks_by_lex(range))
    }),
};

/// Removes the ranks that `ranks_of` names, and replies how many there were.
fn remove(
    cx: &mut Cx<'_, '_>,
    event: &'static str,
    ranks_of: impl FnOnce(SortedSet<'_>) -> Range<usize>,
) -> Result<Effect, Error> {
    let removed = sorted_set_value::edit(&mut cx.view, 0, Expected::default(), |set| {
        if set.is_empty() {
            return 0;
        }
        let ranks = ranks_of(set.view());
        set.remove_ranks(ranks.clone(), Direction::Ascending, |_, _| {});
        ranks.len()
    })?;
    Ok(finish(cx, removed, event))
}

/// Replies how many members were removed, and says so if there were any.
fn finish(cx: &mut Cx<'_, '_>, removed: usize, event: &'static str) -> Effect {
    if removed > 0 {
        cx.view.shrunk(0, Class::SORTED_SET, event);
    }
    cx.reply.integer(removed as i64);
    Effect::given_if(removed > 0)
}

#[cfg(test)]
mod tests {
    use kvasir_resp::reply::Protocol;

    use crate::effect::Effect;
    use crate::testing::events::check_events;
    use crate::testing::{Bench, check, split};

    /// A small set, and one that is a tree for the sake of a long member.
    fn sets() -> [(String, &'static str); 2] {
        let (long, small) = ("~".repeat(65), "ZADD z 1 a 2 b 3 c 4 d 5 e");
        [(small.to_owned(), ":5"), (format!("{small} 9 {long}; ZREM z {long}"), ":6; :1")]
    }

    #[test]
    fn zrem_ends_the_set_with_its_last_member() {
        for (add, added) in sets() {
            check(
                &format!("{add}; ZREM z a x a c; ZRANGE z 0 -1; ZREM z b d e; EXISTS z; ZREM z b"),
                &format!("{added}; :2; [$b $d $e]; :3; :0; :0"),
            );
        }
    }

    #[test]
    fn ranges() {
        for (add, added) in sets() {
            let check_one = |call: &str, removed: usize, left: &str| {
                check(
                    &format!("{add}; {call}; ZRANGE z 0 -1"),
                    &format!("{added}; :{removed}; {left}"),
                );
            };
            check_one("ZREMRANGEBYRANK z 1 -2", 3, "[$a $e]");
            check_one("ZREMRANGEBYRANK z 3 1", 0, "[$a $b $c $d $e]");
            check_one("ZREMRANGEBYRANK z 0 -1", 5, "[]");
            check_one("ZREMRANGEBYSCORE z (1 4", 3, "[$a $e]");
            check_one("ZREMRANGEBYSCORE z -inf +inf", 5, "[]");
            check_one("ZREMRANGEBYSCORE z 6 7", 0, "[$a $b $c $d $e]");
            check_one("ZREMRANGEBYLEX z [b (d", 2, "[$a $d $e]");
            check_one("ZREMRANGEBYLEX z - +", 5, "[]");
        }
        check(
            "ZREMRANGEBYRANK none 0 1; ZREMRANGEBYSCORE none 0 1; ZREMRANGEBYLEX none - +",
            ":0; :0; :0",
        );
        check("ZADD z 1 a; ZREMRANGEBYSCORE z 1 1; EXISTS z", ":1; :1; :0");
    }

    #[test]
    fn refuses() {
        for call in
            ["ZREM s a", "ZREMRANGEBYRANK s 0 1", "ZREMRANGEBYSCORE s 0 1", "ZREMRANGEBYLEX s - +"]
        {
            let wrong_type = "-WRONGTYPE Operation against a key holding the wrong kind of value";
            check(&format!("SET s v; {call}"), &format!("+OK; {wrong_type}"));
            let name = call.split(' ').next().unwrap();
            let arity =
                format!("-ERR wrong number of arguments for '{}' command", name.to_lowercase());
            check(&format!("{name} z"), &arity);
        }
        check(
            "SET s v; ZREMRANGEBYRANK s x 1; ZREMRANGEBYSCORE s x 1; ZREMRANGEBYLEX s x +",
            "+OK; -ERR value is not an integer or out of range; -ERR min or max is not a float; \
             -ERR min or max not valid string range item",
        );
    }

    #[test]
    fn the_log_gets_what_changed() {
        let mut bench = Bench::new(Protocol::Resp2);
        let mut effect = |call: &str| bench.call(split(call)[0].as_args()).1;
        effect("ZADD z 1 a 2 b 3 c 4 d");
        for call in [
            "ZREM z a x",
            "ZREMRANGEBYRANK z 0 0",
            "ZREMRANGEBYSCORE z 3 3",
            "ZREMRANGEBYLEX z - +",
        ] {
            assert_eq!(effect(call), Effect::AsGiven, "{call}");
        }
        for call in
            ["ZREM z a", "ZREMRANGEBYRANK z 0 0", "ZREMRANGEBYSCORE z 3 3", "ZREMRANGEBYLEX z - +"]
        {
            assert_eq!(effect(call), Effect::None, "{call}");
        }
    }

    #[test]
    fn events_of_removing() {
        check_events(
            "ZADD z 1 a 2 b; ZREM z zz; ZREM z a; ZREM z b zz; ZREM z b",
            "new z, zadd z; ; zrem z; zrem z, del z; ",
        );
        check_events(
            "ZADD z 1 a 2 b 3 c 4 d 5 e; ZREMRANGEBYSCORE z 8 9; ZREMRANGEBYSCORE z 1 1; \
             ZREMRANGEBYRANK z 0 0; ZREMRANGEBYRANK z 10 10; ZREMRANGEBYLEX z (zz +; \
             ZREMRANGEBYLEX z - [c; ZREMRANGEBYSCORE z 4 9; ZREMRANGEBYRANK z 0 0",
            "new z, zadd z; ; zremrangebyscore z; zremrangebyrank z; ; ; zremrangebylex z; \
             zremrangebyscore z, del z; ",
        );
        check_events(
            "ZADD z 1 a; ZREMRANGEBYRANK z 0 0; ZADD z 1 a; ZREMRANGEBYLEX z - +; ZREMRANGEBYLEX \
             z - +",
            "new z, zadd z; zremrangebyrank z, del z; new z, zadd z; zremrangebylex z, del z; ",
        );
    }
}
