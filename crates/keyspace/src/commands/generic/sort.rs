//! SORT and SORT_RO: the elements of a collection by their own or by other keys' values.
//!
//! BY and GET name keys that the arguments do not, so both run with the gate closed: in steps, each
//! of which locks the key that it needs.

use std::cmp::Ordering;

use kvasir_resp::args::{Args, ArgsBuf};
use kvasir_resp::number::parse_double;
use kvasir_structures::listpack::Element;
use kvasir_structures::quicklist::End;

use crate::command::{Command, Run, World};
use crate::commands::options::integer;
use crate::effect::{Effect, call};
use crate::error::Error;
use crate::event::Class;
use crate::execute::lock;
use crate::hash_value::Hash;
use crate::list_value::{self, List};
use crate::plan::KeyAt;
use crate::set_value::Set;
use crate::sorted_set_value::SortedSet;
use crate::spec::{
    Argument, ArgumentKind, Begin, Categories, Find, Flags, KeyFlags, KeySpec, Spec, Traits,
};
use crate::value::{Kind, Record, Tag, Text};
use crate::view::View;

pub static COMMANDS: &[&Command] = &[&SORT, &SORT_RO];

type Bytes = Vec<u8>;

const READS: KeyFlags = KeyFlags::RO.union(KeyFlags::ACCESS);
const PATTERN_KEYS: KeySpec = KeySpec {
    flags: READS,
    notes: Some("Keys that BY and GET name: they follow from the elements that are sorted."),
    begin: Begin::Unknown,
    find: Find::Unknown,
};
const DESTINATION: KeySpec = KeySpec {
    flags: KeyFlags::OW.union(KeyFlags::UPDATE),
    notes: Some("The key behind STORE, which may stand anywhere among the options."),
    begin: Begin::Unknown,
    find: Find::Unknown,
};
const PATTERN: Argument =
    Argument { key_spec: Some(1), ..Argument::new("pattern", ArgumentKind::Pattern) };
const LIMIT: Argument =
    Argument::block("offset_count", &[Argument::integer("offset"), Argument::integer("count")])
        .token("LIMIT")
        .optional();
const GET: Argument =
    Argument { multiple: true, multiple_token: true, ..PATTERN.token("GET").optional() };
const ORDER: Argument =
    Argument::one_of("order", &[Argument::word("asc", "ASC"), Argument::word("desc", "DESC")])
        .optional();

static SORT: Command = Command {
    spec: Spec {
        name: "sort",
        summary: "Sorts the elements of a list, a set or a sorted set; returns or stores them.",
        flags: Flags::WRITE.union(Flags::DENYOOM).union(Flags::MOVABLEKEYS),
        traits: Traits::READS_PATTERNS,
        keys: &[KeySpec::first(READS), PATTERN_KEYS, DESTINATION],
        arguments: &[
            Argument::key("key", 0),
            PATTERN.token("BY").optional(),
            LIMIT,
            GET,
            ORDER,
            Argument::word("sorting", "ALPHA").optional(),
            Argument::key("destination", 2).token("STORE").optional(),
        ],
        ..ROW
    },
    run: Run::World(|cx| {
        let options = Options::parse(cx.args.from(2), true)?;
        sort(cx, &options)
    }),
};

static SORT_RO: Command = Command {
    spec: Spec {
        name: "sort_ro",
        summary: "Sorts the elements of a list, a set or a sorted set and returns them.",
        since: "7.0.0",
        flags: Flags::READONLY.union(Flags::MOVABLEKEYS),
        traits: Traits::READS_PATTERNS,
        keys: &[KeySpec::first(READS), PATTERN_KEYS],
        arguments: &[
            Argument::key("key", 0),
            PATTERN.token("BY").optional(),
            LIMIT,
            GET,
            ORDER,
            Argument::word("sorting", "ALPHA").optional(),
        ],
        ..ROW
    },
    run: Run::World(|cx| {
        let options = Options::parse(cx.args.from(2), false)?;
        sort(cx, &options)
    }),
};

/// What the two rows share.
const ROW: Spec = Spec {
    complexity: "O(N+M*log(M)) where N is the number of elements and M that of those returned; \
                 O(N) unsorted.",
    arity: -2,
    categories: Categories::DANGEROUS.union(Categories::SORTABLE),
    ..Spec::BLANK
};

/// So many elements behind the first ones.
#[derive(Clone, Copy)]
struct Limit {
    offset: i64,
    count: i64,
}

#[derive(Default)]
struct Options<'a> {
    by: Option<&'a [u8]>,
    gets: Vec<&'a [u8]>,
    limit: Option<Limit>,
    descends: bool,
    is_alpha: bool,
    store: Option<&'a [u8]>,
}

impl<'a> Options<'a> {
    fn parse(args: Args<'a>, stores: bool) -> Result<Options<'a>, Error> {
        let (mut options, mut words) = (Options::default(), args.iter());
        while let Some(word) = words.next() {
            let is = |name: &str| word.eq_ignore_ascii_case(name.as_bytes());
            let mut value = || words.next().ok_or(Error::SYNTAX);
            if is("asc") {
                options.descends = false;
            } else if is("desc") {
                options.descends = true;
            } else if is("alpha") {
                options.is_alpha = true;
            } else if is("limit") {
                let (offset, count) = (value()?, value()?);
                let (offset, count) = (integer(offset)?, integer(count)?);
                options.limit = Some(Limit { offset, count });
            } else if is("by") {
                options.by = Some(value()?);
            } else if is("get") {
                options.gets.push(value()?);
            } else if stores && is("store") {
                options.store = Some(value()?);
            } else {
                return Err(Error::SYNTAX);
            }
        }
        Ok(options)
    }

    /// A BY without a place for the element means that the order is to stay.
    fn keeps_order(&self) -> bool {
        self.by.is_some_and(|pattern| !pattern.contains(&b'*'))
    }

    /// The part of a sorted list that is wanted.
    fn limited<T>(&self, elements: Vec<T>) -> Vec<T> {
        let Some(Limit { offset, count }) = self.limit else { return elements };
        let count = usize::try_from(count).unwrap_or(usize::MAX);
        elements.into_iter().skip(offset.max(0) as usize).take(count).collect()
    }
}

fn sort(cx: &mut World<'_, '_>, options: &Options<'_>) -> Result<Effect, Error> {
    let key = cx.args.get(1).unwrap_or_default();
    let (kind, elements) = with_key(cx, key, |view| view.read(0).map(elements).transpose())?
        .unwrap_or((Kind::List, Vec::new()));
    // What a set stores unsorted would depend on where its elements happen to lie, and so would
    // what a script makes of it.
    let is_told_on = options.store.is_some() || cx.env.is_in_script;
    let sorted = if options.keeps_order() && kind == Kind::Set && is_told_on {
        let by_element =
            Options { is_alpha: true, descends: options.descends, ..Options::default() };
        by_own_value(elements, &by_element)?
    } else if options.keeps_order() {
        // A set has no order that could be turned around.
        let turns = options.descends && kind != Kind::Set;
        if turns { elements.into_iter().rev().collect() } else { elements }
    } else {
        let values = weights(cx, options, elements);
        by_weight(values, options)?
    };
    let sorted = options.limited(sorted);
    match options.store {
        Some(destination) => {
            let rows = rows(cx, options, sorted);
            Ok(store(cx, destination, rows))
        }
        None => {
            write_rows(cx, options, &sorted);
            Ok(Effect::None)
        }
    }
}

/// Each is looked up when it is written: together they may be much more than what they are of.
fn write_rows(cx: &mut World<'_, '_>, options: &Options<'_>, elements: &[Bytes]) {
    let own: [&[u8]; 1] = [b"#"];
    let gets = if options.gets.is_empty() { &own[..] } else { &options.gets };
    cx.reply.array(elements.len() * gets.len());
    for element in elements {
        for pattern in gets {
            match look_up(cx, pattern, element) {
                Some(value) => cx.reply.bulk(&value),
                None => cx.reply.null(),
            }
        }
        if cx.reply.is_cut() {
            break;
        }
    }
}

/// What is sorted, in the order of the collection.
fn elements(record: Record<'_>) -> Result<(Kind, Vec<Bytes>), Error> {
    let kind = Tag::of(record).kind();
    match kind {
        Kind::List => Ok((kind, List::of(record)?.to_vecs())),
        Kind::Set => {
            let members = Set::of(record)?.members();
            Ok((kind, members.into_iter().map(Element::to_vec).collect()))
        }
        Kind::SortedSet => {
            let mut members = Vec::new();
            SortedSet::of(record)?.for_all(|member, _| {
                members.push(member.with_bytes(<[u8]>::to_vec));
            });
            Ok((kind, members))
        }
        Kind::String | Kind::Hash | Kind::Stream => Err(Error::WRONG_TYPE),
    }
}

/// An element and the text that it is sorted by; `None` where BY names nothing.
type Weighted = (Bytes, Option<Bytes>);

fn weights(cx: &mut World<'_, '_>, options: &Options<'_>, elements: Vec<Bytes>) -> Vec<Weighted> {
    let weight = |element: Bytes| {
        let weight = match options.by {
            Some(pattern) => look_up(cx, pattern, &element),
            None => Some(element.clone()),
        };
        (element, weight)
    };
    elements.into_iter().map(weight).collect()
}

fn by_own_value(elements: Vec<Bytes>, options: &Options<'_>) -> Result<Vec<Bytes>, Error> {
    let weigh = |element: Bytes| (element.clone(), Some(element));
    by_weight(elements.into_iter().map(weigh).collect(), options)
}

/// Elements of equal weight are sorted by themselves, so that the result is always the same.
fn by_weight(values: Vec<Weighted>, options: &Options<'_>) -> Result<Vec<Bytes>, Error> {
    if options.is_alpha {
        return Ok(ordered(values, options, Ord::cmp));
    }
    let number = |(element, weight): Weighted| Ok((element, score(weight.as_deref())?));
    let values = values.into_iter().map(number).collect::<Result<Vec<_>, Error>>()?;
    Ok(ordered(values, options, f64::total_cmp))
}

fn ordered<W>(
    mut values: Vec<(Bytes, W)>,
    options: &Options<'_>,
    compare: impl Fn(&W, &W) -> Ordering,
) -> Vec<Bytes> {
    values.sort_by(|one, other| {
        let order = compare(&one.1, &other.1).then_with(|| one.0.cmp(&other.0));
        if options.descends { order.reverse() } else { order }
    });
    values.into_iter().map(|(element, _)| element).collect()
}

/// A weight as a number; nothing, and an empty text, count as 0. As in C, a text ends at a zero
/// byte.
fn score(weight: Option<&[u8]>) -> Result<f64, Error> {
    let text = weight.and_then(|weight| weight.split(|byte| *byte == 0).next());
    let Some(text) = text.filter(|text| !text.is_empty()) else { return Ok(0.0) };
    // Adding 0 makes -0 equal to it.
    parse_double(text)
        .filter(|score| !score.is_nan())
        .map(|score| score + 0.0)
        .ok_or(Error::fixed("ERR One or more scores can't be converted into double"))
}

/// What is returned: the elements, or what the GETs make of each.
fn rows(cx: &mut World<'_, '_>, options: &Options<'_>, elements: Vec<Bytes>) -> Vec<Option<Bytes>> {
    if options.gets.is_empty() {
        return elements.into_iter().map(Some).collect();
    }
    let mut rows = Vec::with_capacity(elements.len() * options.gets.len());
    for element in &elements {
        rows.extend(options.gets.iter().map(|pattern| look_up(cx, pattern, element)));
    }
    rows
}

/// The value under the name that a pattern makes of an element: a string's, or with `->` a hash
/// field's. `#` is the element itself.
fn look_up(cx: &mut World<'_, '_>, pattern: &[u8], element: &[u8]) -> Option<Bytes> {
    if pattern == b"#" {
        return Some(element.to_vec());
    }
    let star = pattern.iter().position(|byte| *byte == b'*')?;
    let (before, behind) = (&pattern[..star], &pattern[star + 1..]);
    let arrow = behind.windows(2).position(|bytes| bytes == b"->");
    let (behind, field) = match arrow {
        Some(at) if at + 2 < behind.len() => (&behind[..at], Some(&behind[at + 2..])),
        _ => (behind, None),
    };
    let name = [before, element, behind].concat();
    with_key(cx, &name, |view| {
        let env = view.env;
        let record = view.read(0)?;
        match field {
            None => Text::of(record).ok().map(|text| text.bytes().into_owned()),
            Some(field) => {
                let value = Hash::of(record, env).ok()?.get(field)?;
                Some(value.with_bytes(<[u8]>::to_vec))
            }
        }
    })
}

/// Puts the rows into a list, which an empty result deletes; replies with their number.
fn store(cx: &mut World<'_, '_>, destination: &[u8], rows: Vec<Option<Bytes>>) -> Effect {
    let rows: Vec<Bytes> = rows.into_iter().map(Option::unwrap_or_default).collect();
    let existed = with_key(cx, destination, |view| match rows.len() {
        0 => view.delete_for_nothing(0),
        _ => {
            list_value::create(view, 0, End::Tail, rows.iter().map(|row| &row[..]));
            view.changed(0, Class::LIST, "sortstore");
            true
        }
    });
    cx.reply.integer(rows.len() as i64);
    if !existed {
        return Effect::None;
    }
    if !cx.env.logs {
        return Effect::Rewritten(Vec::new());
    }
    let mut calls = vec![call(&[b"DEL", destination])];
    if !rows.is_empty() {
        let mut push = call(&[b"RPUSH", destination]);
        push.extend(rows);
        calls.push(push);
    }
    Effect::Rewritten(calls)
}

/// Lets `f` at one key, which need not be among the call's arguments.
fn with_key<R>(cx: &mut World<'_, '_>, name: &[u8], f: impl FnOnce(&mut View<'_, '_>) -> R) -> R {
    let name = ArgsBuf::from_iter([name]);
    let keys = [KeyAt::new(name.as_args(), 0, cx.db)];
    let mut guards = lock(cx.keyspace, cx.pass, &keys);
    let mut view = View::new(cx.env, cx.tally, cx.keyspace, name.as_args(), &keys, &mut guards);
    view.keep_expired(true);
    f(&mut view)
}

#[cfg(test)]
mod tests {
    use kvasir_resp::reply::Protocol;

    use crate::effect::{Effect, call};
    use crate::testing::events::check_events;
    use crate::testing::{Bench, check, check3, split};

    #[test]
    fn by_number_and_by_text() {
        check(
            "RPUSH l 3 10 2 -1 2.5; SORT l; SORT l DESC; SORT l ALPHA; SORT l ASC",
            ":5; [$-1 $2 $2.5 $3 $10]; [$10 $3 $2.5 $2 $-1]; [$-1 $10 $2 $2.5 $3]; [$-1 $2 $2.5 $3 $10]",
        );
        check3("RPUSH l b a C; SORT l ALPHA; SORT_RO l ALPHA DESC", ":3; [$C $a $b]; [$b $a $C]");
        check(
            "RPUSH l 1.0 1 01; SORT l; SORT l DESC; SORT none",
            ":3; [$01 $1 $1.0]; [$1.0 $1 $01]; []",
        );
    }

    #[test]
    fn limits() {
        check(
            "RPUSH l 3 1 2; SORT l LIMIT 1 1; SORT l LIMIT 0 -1; SORT l LIMIT -5 2; SORT l LIMIT 5 1; SORT l LIMIT 1 0",
            ":3; [$2]; [$1 $2 $3]; [$1 $2]; []; []",
        );
    }

    #[test]
    fn by_other_keys() {
        let data =
            "RPUSH l 1 2 3; MSET w1 30 w2 20 w3 10 v1 a v2 b; HSET h1 f 1 n x; HSET h3 f 0 n y";
        check(
            &format!("{data}; SORT l BY w*; SORT l BY w* GET v*; SORT l BY w* DESC GET # GET v*"),
            ":3; +OK; :2; :2; [$3 $2 $1]; [_ $b $a]; [$1 $a $2 $b $3 _]",
        );
        check3(
            &format!(
                "{data}; SORT l BY h*->f; SORT l BY nosort GET h*->n; SORT_RO l BY none* GET h* GET v"
            ),
            ":3; +OK; :2; :2; [$2 $3 $1]; [$x _ $y]; [_ _ _ _ _ _]",
        );
        check(
            &format!(
                "{data}; SORT l BY v* ALPHA DESC; SORT l BY nosort DESC; SORT l BY h*-> ALPHA"
            ),
            ":3; +OK; :2; :2; [$2 $1 $3]; [$3 $2 $1]; [$1 $2 $3]",
        );
    }

    #[test]
    fn stores() {
        check(
            "RPUSH l 3 1 2; SORT l STORE m; LRANGE m 0 -1; SORT l GET none* STORE l; LRANGE l 0 -1",
            ":3; :3; [$1 $2 $3]; :3; [$ $ $]",
        );
        check(
            "SET m v EX 100; SORT none STORE m; EXISTS m; RPUSH l 1; SET m v EX 100; SORT l STORE m; TTL m",
            "+OK; :0; :0; :1; +OK; :1; :-1",
        );
    }

    #[test]
    fn sort_refuses() {
        let (syntax, wrong, number) = (
            "-ERR syntax error",
            "-WRONGTYPE Operation against a key holding the wrong kind of value",
            "-ERR One or more scores can't be converted into double",
        );
        check(
            "SORT l LIMIT 1; SORT l BY; SORT l GET; SORT l STORE; SORT l FOO; SORT_RO l STORE m",
            &[syntax; 6].join("; "),
        );
        check(
            "SET s v; HSET h f v; SORT s; SORT_RO h; RPUSH l a; SORT l; SORT l LIMIT a 1; RPUSH m 1 nan; SORT m",
            &format!(
                "+OK; :1; {wrong}; {wrong}; :1; {number}; -ERR value is not an integer or out of range; :2; {number}"
            ),
        );
    }

    #[test]
    fn the_log_gets_what_was_stored() {
        let mut bench = Bench::new(Protocol::Resp2);
        let mut effect = |call: &str| bench.call(split(call)[0].as_args()).1;
        effect("RPUSH l 2 1");
        assert_eq!(effect("SORT l"), Effect::None);
        let del = || call(&[b"DEL", b"m"]);
        assert_eq!(
            effect("SORT l STORE m"),
            Effect::Rewritten(vec![del(), call(&[b"RPUSH", b"m", b"1", b"2"])])
        );
        assert_eq!(effect("SORT none STORE m"), Effect::Rewritten(vec![del()]));
        assert_eq!(effect("SORT none STORE m"), Effect::None);
    }

    #[test]
    fn sets_and_sorted_sets() {
        check("SADD s 3 1 2; SORT s; SORT s DESC LIMIT 0 2", ":3; [$1 $2 $3]; [$3 $2]");
        check("SADD s c a b; SORT s; SORT s ALPHA", &format!(":3; {NO_DOUBLE}; [$a $b $c]"));
        check("SADD s \"1\\x00b\" \"\\x00\"; SORT s", ":2; [$\\x00 $1\\x00b]");
        check("SADD s c a b; SORT s BY x STORE d; LRANGE d 0 -1", ":3; :3; [$a $b $c]");
        check("ZADD z 3 a 2 b 1 c; SORT z ALPHA; SORT z BY x", ":3; [$a $b $c]; [$c $b $a]");
        check("ZADD z 3 a 2 b 1 c; SORT z BY x DESC LIMIT 0 2", ":3; [$a $b]");
        check(
            "HSET h a 1; SORT h; SET t x; SORT t; XADD x 1-1 a b; SORT x",
            &format!(":1; {WRONG_TYPE}; +OK; {WRONG_TYPE}; $1-1; {WRONG_TYPE}"),
        );
    }

    const NO_DOUBLE: &str = "-ERR One or more scores can't be converted into double";
    const WRONG_TYPE: &str = "-WRONGTYPE Operation against a key holding the wrong kind of value";

    #[test]
    fn events_of_sorting() {
        check_events(
            "RPUSH l 3 1 2; SORT l; SORT l STORE d; SORT l STORE d; SORT none STORE d; SORT none \
             STORE d; SORT none; SORT_RO none",
            "new l, rpush l; ; new d, sortstore d; sortstore d; keymiss none, del d; keymiss \
             none; keymiss none; keymiss none",
        );
        check_events(
            "RPUSH l 3 1 2; SET w_1 5; SORT l BY w_*; SORT l BY w_* GET x_* STORE d; SORT l BY \
             nosort GET # GET x_*; SET s v; SORT s STORE d",
            "new l, rpush l; new w_1, set w_1; keymiss w_3, keymiss w_2; keymiss w_3, keymiss \
             w_2, keymiss x_2, keymiss x_3, keymiss x_1, new d, sortstore d; keymiss x_3, \
             keymiss x_1, keymiss x_2; new s, set s; ",
        );
    }
}
