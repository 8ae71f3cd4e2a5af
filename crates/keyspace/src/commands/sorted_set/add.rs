//! Adding members and changing scores: ZADD, ZINCRBY.

use kvasir_resp::args::Args;
use kvasir_resp::number::parse_double;

use crate::command::{Command, Cx, Run};
use crate::effect::Effect;
use crate::error::Error;
use crate::event::Class;
use crate::sorted_set_value::{self, Expected};
use crate::spec::{Argument, ArgumentKind, Flags, Group, KeyFlags, KeySpec, Spec};

pub static COMMANDS: &[&Command] = &[&ZADD, &ZINCRBY];

static ZADD: Command = Command {
    spec: Spec {
        name: "zadd",
        summary: "Adds members to a sorted set, or gives those that it has other scores.",
        since: "1.2.0",
        group: Group::SortedSet,
        complexity: "O(log(N)) for each member given, where N is the size of the sorted set.",
        arity: -4,
        flags: Flags::WRITE.union(Flags::DENYOOM).union(Flags::FAST),
        keys: &[KeySpec::first(KeyFlags::RW.union(KeyFlags::UPDATE))],
        history: &[
            ("2.4.0", "Takes several members."),
            ("3.0.2", "New options `XX`, `NX`, `CH` and `INCR`."),
            ("6.2.0", "New options `GT` and `LT`."),
        ],
        arguments: &[
            Argument::key("key", 0),
            Argument::one_of(
                "condition",
                &[Argument::word("nx", "NX"), Argument::word("xx", "XX")],
            )
            .since("3.0.2")
            .optional(),
            Argument::one_of(
                "comparison",
                &[Argument::word("gt", "GT"), Argument::word("lt", "LT")],
            )
            .since("6.2.0")
            .optional(),
            Argument::word("change", "CH").since("3.0.2").optional(),
            Argument::word("increment", "INCR").since("3.0.2").optional(),
            Argument::block(
                "score_member",
                &[Argument::new("score", ArgumentKind::Double), Argument::string("member")],
            )
            .multiple(),
        ],
        ..Spec::BLANK
    },
    run: Run::Keys(zadd),
};

fn zadd(cx: &mut Cx<'_, '_>) -> Result<Effect, Error> {
    let (options, pairs) = Options::parse(cx.args.from(2));
    if pairs.is_empty() || pairs.len() % 2 == 1 {
        return Err(Error::SYNTAX);
    }
    options.check(pairs.len() / 2)?;
    let outcome = add(cx, options, pairs)?;
    outcome.tell(cx, options);
    if options.increments {
        match outcome.last_score {
            Some(score) => cx.reply.double_shortest(score),
            None => cx.reply.null(),
        }
    } else {
        let counted = if options.counts_changes { outcome.updated } else { 0 };
        cx.reply.integer((outcome.added + counted) as i64);
    }
    Ok(Effect::given_if(outcome.is_change()))
}

static ZINCRBY: Command = Command {
    spec: Spec {
        name: "zincrby",
        summary: "Adds a number to a member's score; a member that is missing counts as 0.",
        since: "1.2.0",
        group: Group::SortedSet,
        complexity: "O(log(N)) where N is the size of the sorted set.",
        arity: 4,
        flags: Flags::WRITE.union(Flags::DENYOOM).union(Flags::FAST),
        keys: &[KeySpec::first(KeyFlags::RW.union(KeyFlags::ACCESS).union(KeyFlags::UPDATE))],
        arguments: &[
            Argument::key("key", 0),
            Argument::integer("increment"),
            Argument::string("member"),
        ],
        ..Spec::BLANK
    },
    run: Run::Keys(zincrby),
};

fn zincrby(cx: &mut Cx<'_, '_>) -> Result<Effect, Error> {
    let options = Options { increments: true, ..Options::default() };
    let outcome = add(cx, options, cx.args.from(2))?;
    outcome.tell(cx, options);
    cx.reply.double_shortest(outcome.last_score.expect("no condition held it back"));
    Ok(Effect::given_if(outcome.is_change()))
}

/// ZADD's options.
#[derive(Clone, Copy, Default)]
struct Options {
    only_new: bool,
    only_old: bool,
    only_greater: bool,
    only_less: bool,
    counts_changes: bool,
    increments: bool,
}

impl Options {
    /// The options, and the pairs of score and member behind them.
    fn parse(args: Args<'_>) -> (Options, Args<'_>) {
        let mut options = Options::default();
        for (at, word) in args.iter().enumerate() {
            let flags: [(&[u8], &mut bool); 6] = [
                (b"nx", &mut options.only_new),
                (b"xx", &mut options.only_old),
                (b"gt", &mut options.only_greater),
                (b"lt", &mut options.only_less),
                (b"ch", &mut options.counts_changes),
                (b"incr", &mut options.increments),
            ];
            let flag = flags.into_iter().find(|(name, _)| word.eq_ignore_ascii_case(name));
            let Some((_, flag)) = flag else { return (options, args.from(at)) };
            *flag = true;
        }
        (options, args.from(args.len()))
    }

    fn check(self, pair_count: usize) -> Result<(), Error> {
        let text = if self.only_new && self.only_old {
            "ERR XX and NX options at the same time are not compatible"
        } else if self.only_greater && (self.only_new || self.only_less)
            || self.only_less && self.only_new
        {
            "ERR GT, LT, and/or NX options at the same time are not compatible"
        } else if self.increments && pair_count > 1 {
            "ERR INCR option supports a single increment-element pair"
        } else {
            return Ok(());
        };
        Err(Error::fixed(text))
    }

    /// The score that a member shall have; `None` if an option forbids the change.
    fn decide(self, old: Option<f64>, given: f64) -> Option<f64> {
        let Some(old) = old else { return (!self.only_old).then_some(given) };
        let new = if self.increments { old + given } else { given };
        let is_held_back =
            self.only_new || self.only_less && new >= old || self.only_greater && new <= old;
        (!is_held_back).then_some(new)
    }
}

/// What a call did.
#[derive(Default)]
struct Outcome {
    added: usize,
    updated: usize,
    /// The score of the last member, unless an option held it back.
    last_score: Option<f64>,
    is_nan: bool,
}

fn add(cx: &mut Cx<'_, '_>, options: Options, pairs: Args<'_>) -> Result<Outcome, Error> {
    let scores = pairs.iter().step_by(2).map(|text| parse_double(text).ok_or(Error::NOT_FLOAT));
    let scores: smallvec::SmallVec<[f64; 8]> = scores.collect::<Result<_, Error>>()?;
    let members = pairs.from(1).iter().step_by(2);
    let member_len_max = members.clone().map(<[u8]>::len).max().unwrap_or(0);
    let expected = Expected { entries: scores.len(), member_len_max };
    let outcome = sorted_set_value::edit(&mut cx.view, 0, expected, |set| {
        let mut outcome = Outcome::default();
        for (member, score) in members.zip(&scores) {
            set.update(member, |old| outcome.note(old, options.decide(old, *score)));
        }
        outcome
    })?;
    if outcome.is_nan {
        return Err(Error::fixed("ERR resulting score is not a number (NaN)"));
    }
    Ok(outcome)
}

impl Outcome {
    fn is_change(&self) -> bool {
        self.added + self.updated > 0
    }

    fn tell(&self, cx: &mut Cx<'_, '_>, options: Options) {
        if self.is_change() {
            let event = if options.increments { "zincr" } else { "zadd" };
            cx.view.changed(0, Class::SORTED_SET, event);
        }
    }

    /// Counts a member; returns its score if that has to be written.
    fn note(&mut self, old: Option<f64>, new: Option<f64>) -> Option<f64> {
        self.last_score = new;
        let new = new?;
        match old {
            _ if new.is_nan() => self.is_nan = true,
            Some(old) if old == new => {}
            Some(_) => self.updated += 1,
            None => self.added += 1,
        }
        Some(new).filter(|_| !new.is_nan() && old != Some(new))
    }
}

#[cfg(test)]
mod tests {
    use kvasir_resp::reply::Protocol;

    use crate::effect::Effect;
    use crate::testing::events::check_events;
    use crate::testing::{Bench, check, check_valkey, check3, split};

    const WRONG_TYPE: &str = "-WRONGTYPE Operation against a key holding the wrong kind of value";

    #[test]
    fn zadd_counts_new_members() {
        check(
            "ZADD z 1 a 2 b; ZADD z 3 a 4 c; ZRANGE z 0 -1 WITHSCORES; TYPE z",
            ":2; :1; [$b $2 $a $3 $c $4]; +zset",
        );
        check("ZADD z 1 a 2 a; ZSCORE z a; ZADD z CH 1 a 1 b 2 b; ZCARD z", ":1; $2; :3; :2");
        check(
            "ZADD z 1 '' 1 x; ZRANGE z 0 -1; ZADD z inf 7 -inf 007; ZRANGE z 0 -1 WITHSCORES",
            ":2; [$ $x]; :2; [$007 $-inf $ $1 $x $1 $7 $inf]",
        );
        check(
            "ZADD z 1 a; PEXPIREAT z 33177117420000; ZADD z 2 b; PEXPIRETIME z",
            ":1; :1; :1; :33177117420000",
        );
    }

    #[test]
    fn zadd_under_conditions() {
        check("ZADD z NX 1 a; ZADD z NX 2 a 3 b; ZSCORE z a; ZADD z NX CH 9 b", ":1; :1; $1; :0");
        check(
            "ZADD z XX 1 a; EXISTS z; ZADD z 1 a; ZADD z XX CH 2 a 3 b; ZCARD z; ZADD z XX 3 a",
            ":0; :0; :1; :1; :1; :0",
        );
        check(
            "ZADD z 5 a; ZADD z GT CH 4 a; ZADD z GT CH 5 a; ZADD z GT CH 6 a; ZADD z LT CH 7 a; \
             ZADD z LT CH 2 a; ZADD z LT 1 b; ZADD z GT XX 1 c; ZRANGE z 0 -1 WITHSCORES",
            ":1; :0; :0; :1; :0; :1; :1; :0; [$b $1 $a $2]",
        );
    }

    #[test]
    fn zadd_increments() {
        let script = "ZADD z INCR 5 a; ZADD z INCR 1.5 a; ZADD z NX INCR 1 a; ZADD z XX INCR 1 b; \
                      ZADD z GT INCR -1 a; ZADD z LT INCR -1 a; ZADD z INCR 0 a; \
                      ZADD none XX INCR 1 a; EXISTS none";
        check(script, "$5; $6.5; _; _; _; $5.5; $5.5; _; :0");
        check3(script, ",5; ,6.5; _; _; _; ,5.5; ,5.5; _; :0");
        check(
            "ZINCRBY z 2 a; ZINCRBY z -3 a; ZINCRBY z 0 b; ZRANGE z 0 -1 WITHSCORES",
            "$2; $-1; $0; [$a $-1 $b $0]",
        );
        check3("ZINCRBY z 2.5 a", ",2.5");
        check_valkey("ZADD z 3.3 a; ZINCRBY z 0.1 a; ZSCORE z a", ":1; $3.4; $3.4");
        check_valkey(
            "ZADD z 3.3 a 1e300 b 1e-7 c 123456789012345680000 d; ZRANGE z 0 -1 WITHSCORES",
            ":4; [$c $1e-7 $a $3.3 $d $123456789012345680000 $b $1e+300]",
        );
    }

    #[test]
    fn not_a_number() {
        let nan = "-ERR resulting score is not a number (NaN)";
        check(
            "ZADD z inf a; ZINCRBY z -inf a; ZADD z INCR -inf a; ZSCORE z a; ZINCRBY z inf a",
            &format!(":1; {nan}; {nan}; $inf; $inf"),
        );
        let long = "x".repeat(65);
        check(
            &format!("ZADD z inf a 1 {long}; ZINCRBY z -inf a; ZSCORE z a"),
            &format!(":2; {nan}; $inf"),
        );
    }

    #[test]
    fn refuses() {
        let (syntax, not_float) = ("-ERR syntax error", "-ERR value is not a valid float");
        check(
            "ZADD z 1; ZADD z CH 1; ZADD z CH NX; ZADD z 1 a 2; ZADD z x a y; ZADD z NX 1 a XX",
            &format!(
                "-ERR wrong number of arguments for 'zadd' command; {syntax}; {syntax}; {syntax}; \
                 {syntax}; {syntax}"
            ),
        );
        check(
            "ZADD z x a; ZADD z 1 a nan b; ZADD z '' a; ZADD z ' 1' a; ZADD z 1e999 a; EXISTS z",
            &format!("{not_float}; {not_float}; {not_float}; {not_float}; {not_float}; :0"),
        );
        let (nx, gt) = (
            "-ERR XX and NX options at the same time are not compatible",
            "-ERR GT, LT, and/or NX options at the same time are not compatible",
        );
        check(
            "ZADD z NX XX x a; ZADD z GT LT 1 a; ZADD z NX GT 1 a; ZADD z LT NX 1 a; \
             ZADD z INCR 1 a 2 b; ZADD z NX XX a",
            &format!(
                "{nx}; {gt}; {gt}; {gt}; -ERR INCR option supports a single increment-element pair; \
                 {syntax}"
            ),
        );
        check(
            "SET s v; ZADD s 1 a; ZADD s x a; ZADD s XX 1 a; ZINCRBY s 1 a; ZINCRBY s x a; ZINCRBY s 1",
            &format!(
                "+OK; {WRONG_TYPE}; {not_float}; {WRONG_TYPE}; {WRONG_TYPE}; {not_float}; \
                 -ERR wrong number of arguments for 'zincrby' command"
            ),
        );
    }

    #[test]
    fn encodings() {
        let (fits, long) = ("v".repeat(64), "v".repeat(65));
        let encoding = "OBJECT ENCODING z";
        check(
            &format!("ZADD z 1 {fits}; {encoding}; ZADD z 1 {long}; {encoding}; ZCARD z"),
            ":1; $listpack; :1; $skiplist; :2",
        );
        check(
            &format!("ZADD z 1 {long}; {encoding}; ZREM z {long}; ZADD z 1 a; {encoding}"),
            ":1; $skiplist; :1; :1; $listpack",
        );
        let pairs = |count: usize| (0..count).map(|n| format!(" {n} m{n}")).collect::<String>();
        check(
            &format!(
                "ZADD z{}; {encoding}; ZADD z 7 m3; {encoding}; ZADD z 1 new; {encoding}",
                pairs(128)
            ),
            ":128; $listpack; :0; $listpack; :1; $skiplist",
        );
        check(
            &format!("ZADD z{}; {encoding}; ZREM z m1 m2; {encoding}", pairs(129)),
            ":129; $skiplist; :2; $skiplist",
        );
        let same = " 1 a".repeat(129);
        check_valkey(&format!("ZADD z{same}; {encoding}"), ":1; $skiplist");
        check_valkey(&format!("ZADD z 1 b; ZADD z{same}; {encoding}"), ":1; :1; $skiplist");
        let long = "x".repeat(65);
        let call = format!("ZADD z 1 b; ZADD z XX 1 {long}; {encoding}; ZRANGE z 0 -1");
        check_valkey(&call, ":1; :0; $skiplist; [$b]");
    }

    #[test]
    fn negative_zero() {
        check("ZADD z -0 a 0 b; ZRANGE z 0 -1 WITHSCORES", ":2; [$a $0 $b $0]");
        let long = "x".repeat(65);
        check(
            &format!("ZADD z -0 {long} 0 b; ZRANGE z 0 -1 WITHSCORES; ZADD z CH 0 {long}"),
            &format!(":2; [$b $0 ${long} $-0]; :0"),
        );
    }

    #[test]
    fn the_log_gets_what_changed() {
        let mut bench = Bench::new(Protocol::Resp2);
        let mut effect = |call: &str| bench.call(split(call)[0].as_args()).1;
        for call in ["ZADD z 1 a", "ZADD z 2 a", "ZADD z INCR 1 a", "ZINCRBY z 1 a"] {
            assert_eq!(effect(call), Effect::AsGiven, "{call}");
        }
        for call in ["ZADD z 4 a", "ZADD z NX 1 a", "ZADD z XX 1 b", "ZINCRBY z 0 a", "ZADD z x a"]
        {
            assert_eq!(effect(call), Effect::None, "{call}");
        }
    }

    #[test]
    fn events_of_adding() {
        check_events(
            "ZADD z 1 a; ZADD z 1 a; ZADD z 2 a; ZADD z NX 3 a; ZADD z XX 3 b; ZADD z XX 4 a; \
             ZADD z CH 4 a; ZADD z INCR 1 a; ZADD z INCR 0 a; ZADD z GT 1 a; ZADD none XX 1 a; \
             ZADD n INCR 1 a; ZADD z NX INCR 1 a; ZADD z 1 a 2 b 3 c; ZADD z 1 a 2 b 4 c; SET s \
             v; ZADD s 1 a",
            "new z, zadd z; ; zadd z; ; ; zadd z; ; zincr z; ; ; ; new n, zincr n; ; zadd z; \
             zadd z; new s, set s; ",
        );
        check_events(
            "ZINCRBY z 0 a; ZINCRBY z 0 a; ZINCRBY z 1 a; ZINCRBY z inf b; ZINCRBY z -inf b; \
             ZADD z INCR -inf b",
            "new z, zincr z; ; zincr z; zincr z; ; ",
        );
    }
}
