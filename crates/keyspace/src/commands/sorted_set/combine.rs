//! Sorted sets out of several: ZUNION, ZINTER, ZDIFF, those that store what they make, and
//! ZINTERCARD.

use std::ops::{ControlFlow, Range};

use kvasir_resp::args::Args;
use kvasir_resp::number::parse_double;
use kvasir_structures::ordered_set::OrderedSet;

use super::range::write_ranks;
use super::source::{self, Source};
use crate::command::{Command, Cx, Run};
use crate::commands::options::integer;
use crate::effect::Effect;
use crate::error::Error;
use crate::sorted_set_value::{self, Direction, SortedSet};
use crate::spec::{Argument, Begin, Find, Flags, Group, KeyFlags, KeySpec, Spec};

pub static COMMANDS: &[&Command] =
    &[&ZUNION, &ZINTER, &ZDIFF, &ZUNIONSTORE, &ZINTERSTORE, &ZDIFFSTORE, &ZINTERCARD];

/// The sources, counted at argument `count`.
const fn sources(count: u16) -> KeySpec {
    KeySpec {
        flags: KeyFlags::RO.union(KeyFlags::ACCESS),
        notes: None,
        begin: Begin::Index(count),
        find: Find::Count { count: 0, first: 1, step: 1 },
    }
}

const DESTINATION: KeySpec = KeySpec::first(KeyFlags::OW.union(KeyFlags::UPDATE));

const WEIGHTS: Argument = Argument::integer("weight").token("WEIGHTS").optional().multiple();
const AGGREGATE: Argument = Argument::one_of(
    "aggregate",
    &[Argument::word("sum", "SUM"), Argument::word("min", "MIN"), Argument::word("max", "MAX")],
)
.token("AGGREGATE")
.optional();
const WITH_SCORES: Argument = Argument::word("withscores", "WITHSCORES").optional();

const UNION_COMPLEXITY: &str = "O(N*log(M)) where N is the size of all sorted sets together and M \
                                that of the result.";
const INTER_COMPLEXITY: &str = "O(N*K+M*log(M)) where N is the size of the smallest of K sorted \
                                sets and M that of the result.";
const DIFF_COMPLEXITY: &str = "O(N*K+M*log(M)) where N is the size of the first of K sorted sets \
                               and M that of the result.";

/// What those share that reply with what they make.
const REPLIES: Spec = Spec {
    since: "6.2.0",
    group: Group::SortedSet,
    arity: -3,
    flags: Flags::READONLY.union(Flags::MOVABLEKEYS),
    keys: &[sources(1)],
    arguments: &[
        Argument::integer("numkeys"),
        Argument::key("key", 0).multiple(),
        WEIGHTS,
        AGGREGATE,
        WITH_SCORES,
    ],
    ..Spec::BLANK
};

/// What those share that store it.
const STORES: Spec = Spec {
    since: "2.0.0",
    group: Group::SortedSet,
    arity: -4,
    flags: Flags::WRITE.union(Flags::DENYOOM).union(Flags::MOVABLEKEYS),
    keys: &[DESTINATION, sources(2)],
    arguments: &[
        Argument::key("destination", 0),
        Argument::integer("numkeys"),
        Argument::key("key", 1).multiple(),
        WEIGHTS,
        AGGREGATE,
    ],
    ..Spec::BLANK
};

static ZUNION: Command = Command {
    spec: Spec {
        name: "zunion",
        summary: "Returns the members that any of several sorted sets has.",
        complexity: UNION_COMPLEXITY,
        ..REPLIES
    },
    run: Run::Keys(|cx| reply_with(cx, "zunion", Operation::Union)),
};

static ZINTER: Command = Command {
    spec: Spec {
        name: "zinter",
        summary: "Returns the members that all of several sorted sets have.",
        complexity: INTER_COMPLEXITY,
        ..REPLIES
    },
    run: Run::Keys(|cx| reply_with(cx, "zinter", Operation::Inter)),
};

static ZDIFF: Command = Command {
    spec: Spec {
        name: "zdiff",
        summary: "Returns the members of a sorted set that several others do not have.",
        complexity: DIFF_COMPLEXITY,
        arguments: &[Argument::integer("numkeys"), Argument::key("key", 0).multiple(), WITH_SCORES],
        ..REPLIES
    },
    run: Run::Keys(|cx| reply_with(cx, "zdiff", Operation::Diff)),
};

static ZUNIONSTORE: Command = Command {
    spec: Spec {
        name: "zunionstore",
        summary: "Stores the members that any of several sorted sets has.",
        complexity: UNION_COMPLEXITY,
        ..STORES
    },
    run: Run::Keys(|cx| store(cx, "zunionstore", Operation::Union)),
};

static ZINTERSTORE: Command = Command {
    spec: Spec {
        name: "zinterstore",
        summary: "Stores the members that all of several sorted sets have.",
        complexity: INTER_COMPLEXITY,
        ..STORES
    },
    run: Run::Keys(|cx| store(cx, "zinterstore", Operation::Inter)),
};

static ZDIFFSTORE: Command = Command {
    spec: Spec {
        name: "zdiffstore",
        summary: "Stores the members of a sorted set that several others do not have.",
        since: "6.2.0",
        complexity: DIFF_COMPLEXITY,
        arguments: &[
            Argument::key("destination", 0),
            Argument::integer("numkeys"),
            Argument::key("key", 1).multiple(),
        ],
        ..STORES
    },
    run: Run::Keys(|cx| store(cx, "zdiffstore", Operation::Diff)),
};

static ZINTERCARD: Command = Command {
    spec: Spec {
        name: "zintercard",
        summary: "Counts the members that all of several sorted sets have.",
        since: "7.0.0",
        complexity: "O(N*K) where N is the size of the smallest of K sorted sets.",
        arguments: &[
            Argument::integer("numkeys"),
            Argument::key("key", 0).multiple(),
            Argument::integer("limit").token("LIMIT").optional(),
        ],
        ..REPLIES
    },
    run: Run::Keys(zintercard),
};

#[derive(Clone, Copy, PartialEq, Eq)]
enum Operation {
    Union,
    Inter,
    Diff,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Aggregate {
    Sum,
    Min,
    Max,
}

impl Aggregate {
    fn of(self, one: f64, other: f64) -> f64 {
        match self {
            Aggregate::Sum => number_or_0(one + other),
            Aggregate::Min if other < one => other,
            Aggregate::Max if other > one => other,
            Aggregate::Min | Aggregate::Max => one,
        }
    }
}

/// Redis takes what is no number, such as the sum of both infinities, for 0.
fn number_or_0(value: f64) -> f64 {
    if value.is_nan() { 0.0 } else { value }
}

fn reply_with(cx: &mut Cx<'_, '_>, command: &str, operation: Operation) -> Result<Effect, Error> {
    let (keys, rest) = key_range(cx.args.from(1), command)?;
    let sources = source::read_all(&mut cx.view, keys)?;
    let options = Options::parse(rest, operation, sources.len(), true)?;
    let set = options.combine(operation, sources);
    let ranks = 0..set.len();
    let set = SortedSet::Tree(&set);
    write_ranks(cx.reply, set, ranks, Direction::Ascending, options.with_scores);
    Ok(Effect::None)
}

fn store(
    cx: &mut Cx<'_, '_>,
    command: &'static str,
    operation: Operation,
) -> Result<Effect, Error> {
    let (keys, rest) = key_range(cx.args.from(2), command)?;
    let sources = source::read_all(&mut cx.view, keys.start + 1..keys.end + 1)?;
    let options = Options::parse(rest, operation, sources.len(), false)?;
    let set = options.combine(operation, sources);
    cx.reply.integer(set.len() as i64);
    // The event is called as the command is.
    Ok(Effect::given_if(sorted_set_value::store(&mut cx.view, 0, set, command)))
}

fn zintercard(cx: &mut Cx<'_, '_>) -> Result<Effect, Error> {
    let (keys, rest) = key_range(cx.args.from(1), "zintercard")?;
    let sources = source::read_all(&mut cx.view, keys)?;
    let limit = parse_limit(rest)?;
    let mut count = 0;
    let smallest = sources.iter().min_by_key(|source| source.len()).copied();
    let _ = smallest.unwrap_or(Source::Nothing).try_for_each(|member, _| {
        count += usize::from(sources.iter().all(|source| source.score(member).is_some()));
        if count == limit { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    });
    cx.reply.integer(count as i64);
    Ok(Effect::None)
}

/// How many to count at most; 0 is no limit.
fn parse_limit(args: Args<'_>) -> Result<usize, Error> {
    let mut limit = usize::MAX;
    let mut words = args.iter();
    while let Some(word) = words.next() {
        let value = words.next().filter(|_| word.eq_ignore_ascii_case(b"limit"));
        let number = integer(value.ok_or(Error::SYNTAX)?).ok();
        let number = number.and_then(|number| usize::try_from(number).ok());
        limit = match number.ok_or(Error::fixed("ERR LIMIT can't be negative"))? {
            0 => usize::MAX,
            number => number,
        };
    }
    Ok(limit)
}

/// The places of the sources among themselves, and the options behind them. `args` begin with the
/// number of keys.
fn key_range<'a>(args: Args<'a>, command: &str) -> Result<(Range<usize>, Args<'a>), Error> {
    let count = integer(&args[0])?;
    if count < 1 {
        let text = format!("ERR at least 1 input key is needed for '{command}' command");
        return Err(Error::new(text));
    }
    if count as usize > args.len() - 1 {
        return Err(Error::SYNTAX);
    }
    Ok((0..count as usize, args.from(1 + count as usize)))
}

struct Options {
    /// Of each source; empty if all are 1.
    weights: Vec<f64>,
    aggregate: Aggregate,
    with_scores: bool,
}

impl Options {
    fn parse(
        args: Args<'_>,
        operation: Operation,
        source_count: usize,
        replies: bool,
    ) -> Result<Options, Error> {
        let mut options =
            Options { weights: Vec::new(), aggregate: Aggregate::Sum, with_scores: false };
        let mut words = args.iter();
        while let Some(word) = words.next() {
            let is = |name: &str| word.eq_ignore_ascii_case(name.as_bytes());
            let is_diff = operation == Operation::Diff;
            if is("weights") && !is_diff && words.len() >= source_count {
                let weights = words.by_ref().take(source_count).map(parse_double);
                let not_float = Error::fixed("ERR weight value is not a float");
                options.weights = weights.collect::<Option<_>>().ok_or(not_float)?;
            } else if is("aggregate") && !is_diff {
                options.aggregate = parse_aggregate(words.next().ok_or(Error::SYNTAX)?)?;
            } else if is("withscores") && replies {
                options.with_scores = true;
            } else {
                return Err(Error::SYNTAX);
            }
        }
        Ok(options)
    }

    fn combine(&self, operation: Operation, sources: Vec<Source<'_>>) -> OrderedSet {
        let mut weighted: Vec<Weighted<'_>> = sources
            .into_iter()
            .enumerate()
            .map(|(at, source)| (source, self.weights.get(at).copied().unwrap_or(1.0)))
            .collect();
        if operation != Operation::Diff {
            // As Redis goes through them, which shows in the rounding of sums.
            weighted.sort_by_key(|(source, _)| source.len());
        }
        match operation {
            Operation::Union => unite(&weighted, self.aggregate),
            Operation::Inter => intersect(&weighted, self.aggregate),
            Operation::Diff => subtract(&weighted),
        }
    }
}

fn parse_aggregate(word: &[u8]) -> Result<Aggregate, Error> {
    let words: [(&[u8], Aggregate); 3] =
        [(b"sum", Aggregate::Sum), (b"min", Aggregate::Min), (b"max", Aggregate::Max)];
    let found = words.iter().find(|(name, _)| word.eq_ignore_ascii_case(name));
    found.map(|(_, aggregate)| *aggregate).ok_or(Error::SYNTAX)
}

/// A source and what its scores are multiplied by.
type Weighted<'a> = (Source<'a>, f64);

fn unite(sources: &[Weighted<'_>], aggregate: Aggregate) -> OrderedSet {
    let mut set = OrderedSet::new();
    for (source, weight) in sources {
        source.for_each(|member, score| {
            let score = number_or_0(weight * score);
            set.update(member, |old| Some(old.map_or(score, |old| aggregate.of(old, score))));
        });
    }
    set
}

fn intersect(sources: &[Weighted<'_>], aggregate: Aggregate) -> OrderedSet {
    let mut set = OrderedSet::new();
    let Some(((smallest, weight), others)) = sources.split_first() else { return set };
    smallest.for_each(|member, score| {
        let first = number_or_0(weight * score);
        let all = others.iter().try_fold(first, |all, (source, weight)| {
            // Unlike that of the first, a product that is no number makes the whole sum 0.
            Some(aggregate.of(all, weight * source.score(member)?))
        });
        if let Some(score) = all {
            set.insert(member, score);
        }
    });
    set
}

fn subtract(sources: &[Weighted<'_>]) -> OrderedSet {
    let mut set = OrderedSet::new();
    let Some(((first, _), others)) = sources.split_first() else { return set };
    first.for_each(|member, score| {
        if others.iter().all(|(source, _)| source.score(member).is_none()) {
            set.insert(member, score);
        }
    });
    set
}

#[cfg(test)]
#[path = "combine_tests.rs"]
mod tests;
