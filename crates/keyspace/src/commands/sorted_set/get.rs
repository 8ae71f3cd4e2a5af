//! Reading members, scores, ranks and counts: ZCARD, ZSCORE, ZMSCORE, ZRANK, ZREVRANK, ZCOUNT,
//! ZLEXCOUNT.

use crate::command::{Command, Cx, Run};
use crate::commands::sorted_set::bounds;
use crate::effect::Effect;
use crate::error::Error;
use crate::sorted_set_value::{self, Direction};
use crate::spec::{Argument, ArgumentKind, Flags, Group, KeyFlags, KeySpec, Spec};

pub static COMMANDS: &[&Command] =
    &[&ZCARD, &ZSCORE, &ZMSCORE, &ZRANK, &ZREVRANK, &ZCOUNT, &ZLEXCOUNT];

const READS: &[KeySpec] = &[KeySpec::first(KeyFlags::RO.union(KeyFlags::ACCESS))];
const FAST: Flags = Flags::READONLY.union(Flags::FAST);

static ZCARD: Command = Command {
    spec: Spec {
        name: "zcard",
        summary: "Returns how many members a sorted set has.",
        since: "1.2.0",
        group: Group::SortedSet,
        arity: 2,
        flags: FAST,
        keys: &[KeySpec::first(KeyFlags::RO)],
        arguments: &[Argument::key("key", 0)],
        ..Spec::BLANK
    },
    run: Run::Keys(|cx| {
        let len = sorted_set_value::read(&mut cx.view, 0)?.map_or(0, |set| set.len());
        cx.reply.integer(len as i64);
        Ok(Effect::None)
    }),
};

static ZSCORE: Command = Command {
    spec: Spec {
        name: "zscore",
        summary: "Returns a member's score.",
        since: "1.2.0",
        group: Group::SortedSet,
        arity: 3,
        flags: FAST,
        keys: READS,
        arguments: &[Argument::key("key", 0), Argument::string("member")],
        ..Spec::BLANK
    },
    run: Run::Keys(|cx| {
        let set = sorted_set_value::read(&mut cx.view, 0)?;
        match set.and_then(|set| set.score(&cx.args[2])) {
            Some(score) => cx.reply.double_shortest(score),
            None => cx.reply.null(),
        }
        Ok(Effect::None)
    }),
};

static ZMSCORE: Command = Command {
    spec: Spec {
        name: "zmscore",
        summary: "Returns the scores of several members.",
        since: "6.2.0",
        group: Group::SortedSet,
        complexity: "O(N) where N is the number of members asked for.",
        arity: -3,
        flags: FAST,
        keys: READS,
        arguments: &[Argument::key("key", 0), Argument::string("member").multiple()],
        ..Spec::BLANK
    },
    run: Run::Keys(|cx| {
        let set = sorted_set_value::read(&mut cx.view, 0)?;
        let members = cx.args.from(2);
        cx.reply.array(members.len());
        for member in members.iter() {
            match set.and_then(|set| set.score(member)) {
                Some(score) => cx.reply.double_shortest(score),
                None => cx.reply.null(),
            }
        }
        Ok(Effect::None)
    }),
};

const RANK_ARGUMENTS: &[Argument] = &[
    Argument::key("key", 0),
    Argument::string("member"),
    Argument::word("withscore", "WITHSCORE").optional(),
];
const RANK_HISTORY: &[(&str, &str)] = &[("7.2.0", "New option `WITHSCORE`.")];

static ZRANK: Command = Command {
    spec: Spec {
        name: "zrank",
        summary: "Returns how many members stand before one, by ascending scores.",
        since: "2.0.0",
        group: Group::SortedSet,
        complexity: "O(log(N)) where N is the size of the sorted set.",
        arity: -3,
        flags: FAST,
        keys: READS,
        history: RANK_HISTORY,
        arguments: RANK_ARGUMENTS,
        ..Spec::BLANK
    },
    run: Run::Keys(|cx| rank(cx, Direction::Ascending, "zrank")),
};

static ZREVRANK: Command = Command {
    spec: Spec {
        name: "zrevrank",
        summary: "Returns how many members stand before one, by descending scores.",
        since: "2.0.0",
        group: Group::SortedSet,
        complexity: "O(log(N)) where N is the size of the sorted set.",
        arity: -3,
        flags: FAST,
        keys: READS,
        history: RANK_HISTORY,
        arguments: RANK_ARGUMENTS,
        ..Spec::BLANK
    },
    run: Run::Keys(|cx| rank(cx, Direction::Descending, "zrevrank")),
};

fn rank(cx: &mut Cx<'_, '_>, direction: Direction, command: &str) -> Result<Effect, Error> {
    let with_score = match cx.args.len() {
        3 => false,
        4 if cx.args[3].eq_ignore_ascii_case(b"withscore") => true,
        4 => return Err(Error::SYNTAX),
        _ => return Err(Error::wrong_arity(command)),
    };
    let set = sorted_set_value::read(&mut cx.view, 0)?;
    let Some((set, rank)) = set.and_then(|set| Some((set, set.rank(&cx.args[2])?))) else {
        match with_score {
            true => cx.reply.null_array(),
            false => cx.reply.null(),
        }
        return Ok(Effect::None);
    };
    let rank = match direction {
        Direction::Ascending => rank,
        Direction::Descending => set.len() - 1 - rank,
    };
    if with_score {
        cx.reply.array(2);
    }
    cx.reply.integer(rank as i64);
    if with_score {
        cx.reply.double_shortest(set.score(&cx.args[2]).expect("it has a rank"));
    }
    Ok(Effect::None)
}

static ZCOUNT: Command = Command {
    spec: Spec {
        name: "zcount",
        summary: "Counts the members whose scores are in a range.",
        since: "2.0.0",
        group: Group::SortedSet,
        complexity: "O(log(N)) where N is the size of the sorted set.",
        arity: 4,
        flags: FAST,
        keys: READS,
        arguments: &[
            Argument::key("key", 0),
            Argument::new("min", ArgumentKind::Double),
            Argument::new("max", ArgumentKind::Double),
        ],
        ..Spec::BLANK
    },
    run: Run::Keys(|cx| {
        let range = bounds::score_range(&cx.args[2], &cx.args[3])?;
        let set = sorted_set_value::read(&mut cx.view, 0)?;
        let count = set.map_or(0, |set| set.ranks_by_score(range).len());
        cx.reply.integer(count as i64);
        Ok(Effect::None)
    }),
};

static ZLEXCOUNT: Command = Command {
    spec: Spec {
        name: "zlexcount",
        summary: "Counts the members between two others, where all scores are the same.",
        since: "2.8.9",
        group: Group::SortedSet,
        complexity: "O(log(N)) where N is the size of the sorted set.",
        arity: 4,
        flags: FAST,
        keys: READS,
        arguments: &[Argument::key("key", 0), Argument::string("min"), Argument::string("max")],
        ..Spec::BLANK
    },
    run: Run::Keys(|cx| {
        let range = bounds::lex_range(&cx.args[2], &cx.args[3])?;
        let set = sorted_set_value::read(&mut cx.view, 0)?;
        let count = set.map_or(0, |set| set.ranks_by_lex(range).len());
        cx.reply.integer(count as i64);
        Ok(Effect::None)
    }),
};

#[cfg(test)]
mod tests {
    use crate::testing::events::check_events;
    use crate::testing::{check, check_valkey, check_valkey3, check3};

    const WRONG_TYPE: &str = "-WRONGTYPE Operation against a key holding the wrong kind of value";

    /// Members of a small set, and of one that is a tree for the sake of a long member.
    fn sets() -> [(String, String); 2] {
        let long = "~".repeat(65);
        let small = "ZADD z 1 a 2.5 b 2.5 c inf 12".to_owned();
        [
            (small.clone(), ":4".to_owned()),
            (format!("{small} inf {long}; ZREM z {long}"), ":5; :1".to_owned()),
        ]
    }

    #[test]
    fn scores_and_sizes() {
        for (add, added) in sets() {
            let script = format!(
                "{add}; ZCARD z; ZSCORE z b; ZSCORE z 12; ZSCORE z x; ZMSCORE z a x c; ZSCORE none a; \
                 ZMSCORE none a b; ZCARD none"
            );
            check(&script, &format!("{added}; :4; $2.5; $inf; _; [$1 _ $2.5]; _; [_ _]; :0"));
            check3(&script, &format!("{added}; :4; ,2.5; ,inf; _; [,1 _ ,2.5]; _; [_ _]; :0"));
        }
    }

    #[test]
    fn ranks() {
        for (add, added) in sets() {
            let script = format!(
                "{add}; ZRANK z a; ZRANK z c; ZRANK z 12; ZRANK z x; ZREVRANK z a; ZREVRANK z 12; \
                 ZREVRANK z x; ZRANK none a; ZREVRANK none a"
            );
            let replies = format!("{added}; :0; :2; :3; _; :3; :0; _; _; _");
            check(&script, &replies);
            check3(&script, &replies);
            let with_score = format!(
                "{add}; ZRANK z b WITHSCORE; ZREVRANK z b withscore; ZRANK z x WITHSCORE; \
                 ZRANK none x WITHSCORE"
            );
            check_valkey(&with_score, &format!("{added}; [:1 $2.5]; [:2 $2.5]; _; _"));
            check_valkey3(&with_score, &format!("{added}; [:1 ,2.5]; [:2 ,2.5]; _; _"));
        }
        check_valkey(
            "ZRANK z a x; ZREVRANK z a WITHSCORE x; ZRANK z",
            "-ERR syntax error; -ERR wrong number of arguments for 'zrevrank' command; \
             -ERR wrong number of arguments for 'zrank' command",
        );
    }

    #[test]
    fn counts() {
        for (add, added) in sets() {
            check(
                &format!(
                    "{add}; ZCOUNT z -inf +inf; ZCOUNT z 1 2.5; ZCOUNT z (1 (2.5; ZCOUNT z (1 2.5; \
                     ZCOUNT z 3 1; ZCOUNT z inf inf; ZCOUNT z (inf inf; ZCOUNT none 1 2"
                ),
                &format!("{added}; :4; :3; :0; :2; :0; :1; :0; :0"),
            );
        }
        let long = "~".repeat(65);
        for (add, added) in [
            ("ZADD z 0 a 0 bb 0 c 0 d".to_owned(), ":4"),
            (format!("ZADD z 0 a 0 bb 0 c 0 d 0 {long}; ZREM z {long}"), ":5; :1"),
        ] {
            check(
                &format!(
                    "{add}; ZLEXCOUNT z - +; ZLEXCOUNT z [b (d; ZLEXCOUNT z (bb +; ZLEXCOUNT z - (a; \
                     ZLEXCOUNT z + -; ZLEXCOUNT z [bb [bb; ZLEXCOUNT z [ [zz; ZLEXCOUNT none - +"
                ),
                &format!("{added}; :4; :2; :2; :0; :0; :1; :4; :0"),
            );
        }
    }

    #[test]
    fn refuses() {
        let calls = [
            "ZCARD s",
            "ZSCORE s a",
            "ZMSCORE s a",
            "ZRANK s a",
            "ZREVRANK s a",
            "ZCOUNT s 1 2",
            "ZLEXCOUNT s - +",
        ];
        for call in calls {
            check(&format!("SET s v; {call}"), &format!("+OK; {WRONG_TYPE}"));
            let name = call.split(' ').next().unwrap();
            let arity =
                format!("-ERR wrong number of arguments for '{}' command", name.to_lowercase());
            check(name, &arity);
        }
        let (float, item) =
            ("-ERR min or max is not a float", "-ERR min or max not valid string range item");
        check(
            "SET s v; ZCOUNT s x 1; ZCOUNT s 1 ((2; ZCOUNT s nan 1; ZCOUNT z 1 '2 '",
            &format!("+OK; {float}; {float}; {float}; {float}"),
        );
        check(
            "SET s v; ZLEXCOUNT s a +; ZLEXCOUNT s - ++; ZLEXCOUNT z '' +; ZLEXCOUNT z - -x",
            &format!("+OK; {item}; {item}; {item}; {item}"),
        );
    }

    #[test]
    fn misses_are_events() {
        check_events(
            "ZCARD k; ZSCORE k a; ZMSCORE k a; ZRANK k a; ZREVRANK k a; ZCOUNT k 0 1; ZLEXCOUNT \
             k - +",
            "keymiss k; keymiss k; keymiss k; keymiss k; keymiss k; keymiss k; keymiss k",
        );
    }
}
