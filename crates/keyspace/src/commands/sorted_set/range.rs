//! Ranges of members: ZRANGE and its older kin, ZRANGESTORE.
//!
//! All are one thing: bounds, an order, perhaps a limit, which together say a range of ranks.

use std::ops::Range;

use kvasir_resp::args::Args;
use kvasir_resp::reply::{Protocol, Reply};
use kvasir_structures::ordered_set::OrderedSet;

use crate::command::{Command, Cx, Run};
use crate::commands::options::integer;
use crate::commands::sorted_set::bounds;
use crate::effect::Effect;
use crate::error::Error;
use crate::sorted_set_value::{self, Direction, LexRange, Member, ScoreRange, SortedSet};
use crate::spec::{Argument, ArgumentKind, Flags, Group, KeyFlags, KeySpec, Spec};

pub static COMMANDS: &[&Command] = &[
    &ZRANGE,
    &ZRANGESTORE,
    &ZREVRANGE,
    &ZRANGEBYSCORE,
    &ZREVRANGEBYSCORE,
    &ZRANGEBYLEX,
    &ZREVRANGEBYLEX,
];

const READS: &[KeySpec] = &[KeySpec::first(KeyFlags::RO.union(KeyFlags::ACCESS))];
const COMPLEXITY: &str =
    "O(log(N)+M) where N is the size of the sorted set and M the number of members returned.";

const SORT_BY: Argument = Argument::one_of(
    "sortby",
    &[Argument::word("byscore", "BYSCORE"), Argument::word("bylex", "BYLEX")],
)
.optional();
const REV: Argument = Argument::word("rev", "REV").optional();
const LIMIT: Argument =
    Argument::block("offset_count", &[Argument::integer("offset"), Argument::integer("count")])
        .token("LIMIT")
        .optional();
const WITH_SCORES: Argument = Argument::word("withscores", "WITHSCORES").optional();
const MIN_SCORE: Argument = Argument::new("min", ArgumentKind::Double);
const MAX_SCORE: Argument = Argument::new("max", ArgumentKind::Double);

static ZRANGE: Command = Command {
    spec: Spec {
        name: "zrange",
        summary: "Returns the members of a range of ranks, scores or members.",
        since: "1.2.0",
        group: Group::SortedSet,
        complexity: COMPLEXITY,
        arity: -4,
        flags: Flags::READONLY,
        keys: READS,
        history: &[("6.2.0", "New options `REV`, `BYSCORE`, `BYLEX` and `LIMIT`.")],
        arguments: &[
            Argument::key("key", 0),
            Argument::string("start"),
            Argument::string("stop"),
            SORT_BY.since("6.2.0"),
            REV.since("6.2.0"),
            LIMIT.since("6.2.0"),
            WITH_SCORES,
        ],
        ..Spec::BLANK
    },
    run: Run::Keys(|cx| reply_range(cx, Form::Options)),
};

static ZRANGESTORE: Command = Command {
    spec: Spec {
        name: "zrangestore",
        summary: "Stores the members of a range under another key.",
        since: "6.2.0",
        group: Group::SortedSet,
        complexity: "O(log(N)+M*log(M)) where N is the size of the sorted set and M the number of \
                     members stored.",
        arity: -5,
        flags: Flags::WRITE.union(Flags::DENYOOM),
        keys: &[
            KeySpec::first(KeyFlags::OW.union(KeyFlags::UPDATE)),
            KeySpec::range(KeyFlags::RO.union(KeyFlags::ACCESS), 2, 0, 1),
        ],
        arguments: &[
            Argument::key("dst", 0),
            Argument::key("src", 1),
            Argument::string("min"),
            Argument::string("max"),
            SORT_BY,
            REV,
            LIMIT,
        ],
        ..Spec::BLANK
    },
    run: Run::Keys(zrangestore),
};

static ZREVRANGE: Command = Command {
    spec: Spec {
        name: "zrevrange",
        summary: "Returns the members of a range of ranks, by descending scores.",
        since: "1.2.0",
        group: Group::SortedSet,
        complexity: COMPLEXITY,
        arity: -4,
        flags: Flags::READONLY,
        keys: READS,
        deprecated: Some(("6.2.0", "`ZRANGE` with the `REV` argument")),
        arguments: &[
            Argument::key("key", 0),
            Argument::integer("start"),
            Argument::integer("stop"),
            WITH_SCORES,
        ],
        ..Spec::BLANK
    },
    run: Run::Keys(|cx| reply_range(cx, Form::Fixed(By::Rank, Direction::Descending))),
};

static ZRANGEBYSCORE: Command = Command {
    spec: Spec {
        name: "zrangebyscore",
        summary: "Returns the members whose scores are in a range.",
        since: "1.0.5",
        group: Group::SortedSet,
        complexity: COMPLEXITY,
        arity: -4,
        flags: Flags::READONLY,
        keys: READS,
        history: &[("2.0.0", "New option `WITHSCORES`.")],
        deprecated: Some(("6.2.0", "`ZRANGE` with the `BYSCORE` argument")),
        arguments: &[
            Argument::key("key", 0),
            MIN_SCORE,
            MAX_SCORE,
            WITH_SCORES.since("2.0.0"),
            LIMIT,
        ],
        ..Spec::BLANK
    },
    run: Run::Keys(|cx| reply_range(cx, Form::Fixed(By::Score, Direction::Ascending))),
};

static ZREVRANGEBYSCORE: Command = Command {
    spec: Spec {
        name: "zrevrangebyscore",
        summary: "Returns the members whose scores are in a range, by descending scores.",
        since: "2.2.0",
        group: Group::SortedSet,
        complexity: COMPLEXITY,
        arity: -4,
        flags: Flags::READONLY,
        keys: READS,
        history: &[("2.1.6", "`min` and `max` may be excluded.")],
        deprecated: Some(("6.2.0", "`ZRANGE` with the `REV` and `BYSCORE` arguments")),
        arguments: &[Argument::key("key", 0), MAX_SCORE, MIN_SCORE, WITH_SCORES, LIMIT],
        ..Spec::BLANK
    },
    run: Run::Keys(|cx| reply_range(cx, Form::Fixed(By::Score, Direction::Descending))),
};

static ZRANGEBYLEX: Command = Command {
    spec: Spec {
        name: "zrangebylex",
        summary: "Returns the members between two others, where all scores are the same.",
        since: "2.8.9",
        group: Group::SortedSet,
        complexity: COMPLEXITY,
        arity: -4,
        flags: Flags::READONLY,
        keys: READS,
        deprecated: Some(("6.2.0", "`ZRANGE` with the `BYLEX` argument")),
        arguments: &[
            Argument::key("key", 0),
            Argument::string("min"),
            Argument::string("max"),
            LIMIT,
        ],
        ..Spec::BLANK
    },
    run: Run::Keys(|cx| reply_range(cx, Form::Fixed(By::Lex, Direction::Ascending))),
};

static ZREVRANGEBYLEX: Command = Command {
    spec: Spec {
        name: "zrevrangebylex",
        summary: "Returns the members between two others backwards, where all scores are the same.",
        since: "2.8.9",
        group: Group::SortedSet,
        complexity: COMPLEXITY,
        arity: -4,
        flags: Flags::READONLY,
        keys: READS,
        deprecated: Some(("6.2.0", "`ZRANGE` with the `REV` and `BYLEX` arguments")),
        arguments: &[
            Argument::key("key", 0),
            Argument::string("max"),
            Argument::string("min"),
            LIMIT,
        ],
        ..Spec::BLANK
    },
    run: Run::Keys(|cx| reply_range(cx, Form::Fixed(By::Lex, Direction::Descending))),
};

/// What bounds are.
#[derive(Clone, Copy, PartialEq, Eq)]
enum By {
    Rank,
    Score,
    Lex,
}

/// How a call says what its bounds are and in which order it wants members.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Form {
    /// By the words BYSCORE, BYLEX and REV.
    Options,
    /// As ZRANGE, without WITHSCORES.
    Store,
    /// By its name.
    Fixed(By, Direction),
}

/// A call's wish.
struct Query<'a> {
    bounds: Bounds<'a>,
    direction: Direction,
    limit: Option<Limit>,
    with_scores: bool,
}

enum Bounds<'a> {
    Ranks(i64, i64),
    Scores(ScoreRange),
    Members(LexRange<'a>),
}

impl<'a> Query<'a> {
    /// `args` are the two bounds and the options.
    fn parse(args: Args<'a>, form: Form) -> Result<Query<'a>, Error> {
        let words = Words::parse(args.from(2), form)?;
        let by = words.by.unwrap_or(By::Rank);
        let direction = words.direction.unwrap_or(Direction::Ascending);
        if by == By::Rank && words.limit.is_some_and(|limit| limit.count != -1) {
            return Err(Error::fixed(
                "ERR syntax error, LIMIT is only supported in combination with either BYSCORE or \
                 BYLEX",
            ));
        }
        if by == By::Lex && words.with_scores {
            return Err(Error::fixed(
                "ERR syntax error, WITHSCORES not supported in combination with BYLEX",
            ));
        }
        let (first, second) = (args.get(0).unwrap_or_default(), args.get(1).unwrap_or_default());
        let (min, max) = match direction {
            Direction::Descending => (second, first),
            Direction::Ascending => (first, second),
        };
        let bounds = match by {
            By::Rank => Bounds::Ranks(integer(first)?, integer(second)?),
            By::Score => Bounds::Scores(bounds::score_range(min, max)?),
            By::Lex => Bounds::Members(bounds::lex_range(min, max)?),
        };
        Ok(Query { bounds, direction, limit: words.limit, with_scores: words.with_scores })
    }

    /// The ranks that it wants of a set.
    fn ranks(&self, set: SortedSet<'_>) -> Range<usize> {
        let ranks = match self.bounds {
            Bounds::Ranks(start, stop) => {
                let ranks = bounds::rank_range(start, stop, set.len());
                return match self.direction {
                    Direction::Ascending => ranks,
                    Direction::Descending => set.len() - ranks.end..set.len() - ranks.start,
                };
            }
            Bounds::Scores(range) => set.ranks_by_score(range),
            Bounds::Members(range) => set.ranks_by_lex(range),
        };
        match self.limit {
            Some(limit) => limit.of(ranks, self.direction),
            None => ranks,
        }
    }
}

/// `count` ranks behind the first `offset` ones; all behind them if `count` is negative, none if
/// `offset` is.
#[derive(Clone, Copy)]
struct Limit {
    offset: i64,
    count: i64,
}

impl Limit {
    fn of(self, ranks: Range<usize>, direction: Direction) -> Range<usize> {
        let skipped = usize::try_from(self.offset).unwrap_or(usize::MAX).min(ranks.len());
        let left = ranks.len() - skipped;
        let kept = usize::try_from(self.count).unwrap_or(usize::MAX).min(left);
        match direction {
            Direction::Ascending => ranks.start + skipped..ranks.start + skipped + kept,
            Direction::Descending => ranks.end - skipped - kept..ranks.end - skipped,
        }
    }
}

/// The options behind the bounds.
struct Words {
    by: Option<By>,
    direction: Option<Direction>,
    limit: Option<Limit>,
    with_scores: bool,
}

impl Words {
    fn parse(args: Args<'_>, form: Form) -> Result<Words, Error> {
        let (by, direction) = match form {
            Form::Fixed(by, direction) => (Some(by), Some(direction)),
            Form::Options | Form::Store => (None, None),
        };
        let mut words = Words { by, direction, limit: None, with_scores: false };
        let mut rest = args.iter();
        while let Some(word) = rest.next() {
            let is = |name: &str| word.eq_ignore_ascii_case(name.as_bytes());
            if is("withscores") && form != Form::Store {
                words.with_scores = true;
            } else if is("limit") && rest.len() >= 2 {
                let mut number = || integer(rest.next().unwrap_or_default());
                words.limit = Some(Limit { offset: number()?, count: number()? });
            } else if is("rev") && words.direction.is_none() {
                words.direction = Some(Direction::Descending);
            } else if is("byscore") && words.by.is_none() {
                words.by = Some(By::Score);
            } else if is("bylex") && words.by.is_none() {
                words.by = Some(By::Lex);
            } else {
                return Err(Error::SYNTAX);
            }
        }
        Ok(words)
    }
}

fn reply_range(cx: &mut Cx<'_, '_>, form: Form) -> Result<Effect, Error> {
    let query = Query::parse(cx.args.from(2), form)?;
    let Some(set) = sorted_set_value::read(&mut cx.view, 0)? else {
        cx.reply.array(0);
        return Ok(Effect::None);
    };
    write_ranks(cx.reply, set, query.ranks(set), query.direction, query.with_scores);
    Ok(Effect::None)
}

/// Replies with members of these ranks.
pub(super) fn write_ranks(
    reply: &mut Reply,
    set: SortedSet<'_>,
    ranks: Range<usize>,
    direction: Direction,
    with_scores: bool,
) {
    write_header(reply, ranks.len(), with_scores);
    set.for_each(ranks, direction, |member, score| {
        write_entry(reply, member, with_scores.then_some(score));
    });
}

/// The header of an array of members, or of members and scores: RESP3 wants pairs, RESP2 a flat
/// list.
pub(super) fn write_header(reply: &mut Reply, len: usize, with_scores: bool) {
    let is_flat = with_scores && reply.protocol() == Protocol::Resp2;
    reply.array(if is_flat { 2 * len } else { len });
}

/// An entry of such an array.
pub(super) fn write_entry(reply: &mut Reply, member: Member<'_>, score: Option<f64>) {
    if score.is_some() && reply.protocol() == Protocol::Resp3 {
        reply.array(2);
    }
    member.write_to(reply);
    score.into_iter().for_each(|score| reply.double_shortest(score));
}

fn zrangestore(cx: &mut Cx<'_, '_>) -> Result<Effect, Error> {
    let query = Query::parse(cx.args.from(3), Form::Store)?;
    let mut stored = OrderedSet::new();
    if let Some(set) = sorted_set_value::read(&mut cx.view, 1)? {
        set.for_each(query.ranks(set), Direction::Ascending, |member, score| {
            member.with_bytes(|member| stored.insert(member, score));
        });
    }
    cx.reply.integer(stored.len() as i64);
    let changed = sorted_set_value::store(&mut cx.view, 0, stored, "zrangestore");
    Ok(Effect::given_if(changed))
}

#[cfg(test)]
mod tests {
    use crate::testing::events::check_events;
    use crate::testing::{check, check3};

    const WRONG_TYPE: &str = "-WRONGTYPE Operation against a key holding the wrong kind of value";

    /// Checks reads of a small set and of one that is a tree for the sake of a long member.
    fn check_sets(add: &str, added: usize, reads: &str, replies: &str) {
        let long = "~".repeat(65);
        check(&format!("{add}; {reads}"), &format!(":{added}; {replies}"));
        check(
            &format!("{add} 9 {long}; ZREM z {long}; {reads}"),
            &format!(":{}; :1; {replies}", added + 1),
        );
    }

    const ABC: &str = "ZADD z 1 a 2 b 3 c";

    #[test]
    fn by_rank() {
        check_sets(
            ABC,
            3,
            "ZRANGE z 0 -1; ZRANGE z 1 1; ZRANGE z -2 9; ZRANGE z 2 1; ZRANGE z 3 9; \
             ZRANGE z 0 1 REV; ZRANGE z 0 0 WITHSCORES; ZRANGE z 0 -1 rev withscores; \
             ZREVRANGE z 0 1; ZREVRANGE z -1 -1 WITHSCORES; ZRANGE z 0 1 LIMIT 0 -1; ZRANGE none 0 1",
            "[$a $b $c]; [$b]; [$b $c]; []; []; [$c $b]; [$a $1]; [$c $3 $b $2 $a $1]; [$c $b]; \
             [$a $1]; [$a $b]; []",
        );
        check3(
            "ZADD z 1 a 2 b; ZRANGE z 0 -1 WITHSCORES; ZREVRANGE z 0 0 WITHSCORES; ZRANGE z 0 0; \
             ZRANGE none 0 1 WITHSCORES",
            ":2; [[$a ,1] [$b ,2]]; [[$b ,2]]; [$a]; []",
        );
    }

    #[test]
    fn by_score() {
        check_sets(
            ABC,
            3,
            "ZRANGE z 1 2 BYSCORE; ZRANGE z (1 +inf BYSCORE WITHSCORES; ZRANGE z 3 (1 BYSCORE REV; \
             ZRANGE z -inf inf BYSCORE LIMIT 1 1; ZRANGE z inf -inf BYSCORE REV LIMIT 1 5; \
             ZRANGE z 0 9 BYSCORE LIMIT 9 1; ZRANGE z 0 9 BYSCORE LIMIT -1 2; \
             ZRANGE z 0 9 BYSCORE LIMIT 1 -7; ZRANGE z 0 9 BYSCORE LIMIT 1 0; ZRANGE z 3 1 BYSCORE",
            "[$a $b]; [$b $2 $c $3]; [$c $b]; [$b]; [$b $a]; []; []; [$b $c]; []; []",
        );
        check_sets(
            ABC,
            3,
            "ZRANGEBYSCORE z 2 3 WITHSCORES; ZRANGEBYSCORE z 2 3 LIMIT 1 1 WITHSCORES; \
             ZREVRANGEBYSCORE z 3 (1; ZREVRANGEBYSCORE z inf -inf WITHSCORES LIMIT 0 2; \
             ZREVRANGEBYSCORE z 1 3; ZRANGEBYSCORE none 1 2",
            "[$b $2 $c $3]; [$c $3]; [$c $b]; [$c $3 $b $2]; []; []",
        );
        check3("ZADD z 1 a; ZRANGEBYSCORE z 1 2 WITHSCORES", ":1; [[$a ,1]]");
    }

    #[test]
    fn by_member() {
        check_sets(
            "ZADD z 0 a 0 b 0 c 0 12",
            4,
            "ZRANGE z - + BYLEX; ZRANGE z [a (c BYLEX; ZRANGE z + - BYLEX REV LIMIT 1 2; \
             ZRANGEBYLEX z (a +; ZRANGEBYLEX z - + LIMIT 1 2; ZREVRANGEBYLEX z [b [a; \
             ZREVRANGEBYLEX z + - LIMIT 0 1; ZRANGEBYLEX z + -; ZRANGEBYLEX none - +",
            "[$12 $a $b $c]; [$a $b]; [$b $a]; [$b $c]; [$a $b]; [$b $a]; [$c]; []; []",
        );
    }

    #[test]
    fn stores() {
        check(
            "ZADD z 1 a 2 b 3 c; ZRANGESTORE d z 1 -1; ZRANGE d 0 -1 WITHSCORES; \
             ZRANGESTORE d z 0 0 REV; ZRANGE d 0 -1; ZRANGESTORE d z (1 3 BYSCORE LIMIT 1 1; \
             ZRANGE d 0 -1; ZRANGESTORE d z - [b BYLEX; ZRANGE d 0 -1",
            ":3; :2; [$b $2 $c $3]; :1; [$c]; :1; [$c]; :2; [$a $b]",
        );
        check(
            "ZADD z 1 a 2 b; ZRANGESTORE z z 0 0; ZRANGE z 0 -1; ZRANGESTORE z z 5 6; EXISTS z; \
             SET d v; ZRANGESTORE d none 0 1; EXISTS d; ZRANGESTORE d none 0 1",
            ":2; :1; [$a]; :0; :0; +OK; :0; :0; :0",
        );
        check(
            "SET d v EX 100; ZADD z 1 a; ZRANGESTORE d z 0 -1; TTL d; TYPE d",
            "+OK; :1; :1; :-1; +zset",
        );
        let pairs: String = (0..200).map(|n| format!(" {n} m{n}")).collect();
        check(
            &format!(
                "ZADD z{pairs}; ZRANGESTORE d z 0 127; OBJECT ENCODING d; \
                ZRANGESTORE d z 0 128; OBJECT ENCODING d; ZCARD d"
            ),
            ":200; :128; $listpack; :129; $skiplist; :129",
        );
    }

    #[test]
    fn refuses() {
        let syntax = "-ERR syntax error";
        let integer = "-ERR value is not an integer or out of range";
        let (float, item) =
            ("-ERR min or max is not a float", "-ERR min or max not valid string range item");
        let limit = "-ERR syntax error, LIMIT is only supported in combination with either \
                     BYSCORE or BYLEX";
        let scores = "-ERR syntax error, WITHSCORES not supported in combination with BYLEX";
        check(
            "SET s v; ZRANGE s x 1; ZRANGE s 0 1.5; ZRANGE s 0 1 FOO; ZRANGE s 0 1 LIMIT 0 1; \
             ZRANGE s - + BYLEX WITHSCORES; ZRANGE s 1 x BYSCORE; ZRANGE s a + BYLEX; \
             ZRANGE s 1 2 BYSCORE LIMIT 1; ZRANGE s 1 2 BYSCORE LIMIT x 1; \
             ZRANGE s 1 2 BYSCORE BYLEX; ZRANGE s 1 2 REV REV",
            &format!(
                "+OK; {integer}; {integer}; {syntax}; {limit}; {scores}; {float}; {item}; {syntax}; \
                 {integer}; {syntax}; {syntax}"
            ),
        );
        check(
            "ZREVRANGE z 0 1 REV; ZREVRANGE z 0 1 BYSCORE; ZRANGEBYSCORE z 1 2 REV; \
             ZRANGEBYSCORE z 1 2 BYSCORE; ZRANGEBYLEX z - + WITHSCORES; \
             ZREVRANGEBYLEX z + - LIMIT 0; ZRANGESTORE d z 0 1 WITHSCORES; \
             ZRANGESTORE d z x 1; ZRANGEBYSCORE z x 1; ZRANGEBYLEX z - x; ZREVRANGE z 0 1 LIMIT 1 2",
            &format!(
                "{syntax}; {syntax}; {syntax}; {syntax}; {scores}; {syntax}; {syntax}; {integer}; \
                 {float}; {item}; {limit}"
            ),
        );
        let calls = [
            "ZRANGE s 0 1",
            "ZREVRANGE s 0 1",
            "ZRANGEBYSCORE s 0 1",
            "ZREVRANGEBYSCORE s 0 1",
            "ZRANGEBYLEX s - +",
            "ZREVRANGEBYLEX s + -",
            "ZRANGESTORE d s 0 1",
        ];
        for call in calls {
            check(&format!("SET s v; {call}"), &format!("+OK; {WRONG_TYPE}"));
            let name = call.split(' ').next().unwrap();
            let arity =
                format!("-ERR wrong number of arguments for '{}' command", name.to_lowercase());
            check(&format!("{name} s 0"), &arity);
        }
    }

    #[test]
    fn events_of_storing() {
        check_events(
            "ZADD a 1 x 2 y; ZRANGESTORE d a 0 -1; ZRANGESTORE d a 5 9; ZRANGESTORE d none 0 1; \
             ZRANGESTORE d a 0 0; ZRANGESTORE d none 0 1; ZRANGESTORE d a (5 9 BYSCORE; SET d v; \
             ZRANGESTORE d a 0 0; ZRANGESTORE a a 0 0",
            "new a, zadd a; new d, zrangestore d; del d; keymiss none; new d, zrangestore d; \
             keymiss none, del d; ; new d, set d; zrangestore d; zrangestore a",
        );
        check_events(
            "ZRANGE k 0 1; ZREVRANGE k 0 1; ZRANGEBYSCORE k 0 1; ZREVRANGEBYSCORE k 0 1; \
             ZRANGEBYLEX k - +; ZREVRANGEBYLEX k + -",
            "keymiss k; keymiss k; keymiss k; keymiss k; keymiss k; keymiss k",
        );
    }
}
