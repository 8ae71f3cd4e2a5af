//! Drawing fields: HRANDFIELD.

use kvasir_resp::reply::{Protocol, Reply};

use crate::command::{Command, Cx, Run};
use crate::commands::draw_options::Draws;
use crate::effect::Effect;
use crate::error::Error;
use crate::hash_value::{self, Hash, Item};
use crate::rng::Rng;
use crate::spec::{Argument, Flags, Group, KeyFlags, KeySpec, Spec};

pub static COMMANDS: &[&Command] = &[&HRANDFIELD];

static HRANDFIELD: Command = Command {
    spec: Spec {
        name: "hrandfield",
        summary: "Returns fields drawn at random, with their values if wanted.",
        since: "6.2.0",
        group: Group::Hash,
        complexity: "O(N) where N is the number of fields returned; for a large hash, more than \
                     a few draws look at every field once.",
        arity: -2,
        flags: Flags::READONLY,
        keys: &[KeySpec::first(KeyFlags::RO.union(KeyFlags::ACCESS))],
        tips: &["nondeterministic_output"],
        arguments: &[
            Argument::key("key", 0),
            Argument::block(
                "options",
                &[
                    Argument::integer("count"),
                    Argument::word("withvalues", "WITHVALUES").optional(),
                ],
            )
            .optional(),
        ],
        ..Spec::BLANK
    },
    run: Run::Keys(hrandfield),
};

fn hrandfield(cx: &mut Cx<'_, '_>) -> Result<Effect, Error> {
    if cx.args.len() > 2 {
        return draw(cx);
    }
    let hash = hash_value::read(&mut cx.view, 0)?;
    match hash.and_then(|hash| hash.random(cx.rng)) {
        Some((field, _)) => field.write_to(cx.reply),
        None => cx.reply.null(),
    }
    Ok(Effect::None)
}

fn draw(cx: &mut Cx<'_, '_>) -> Result<Effect, Error> {
    let (draws, with_values) = Draws::parse_with(cx.args.from(2), b"withvalues")?;
    match hash_value::read(&mut cx.view, 0)? {
        Some(hash) => write(hash, draws, with_values, cx.rng, cx.reply),
        None => cx.reply.array(0),
    }
    Ok(Effect::None)
}

fn write(hash: Hash<'_>, draws: Draws, with_values: bool, rng: &mut Rng, reply: &mut Reply) {
    // RESP3 wants pairs, RESP2 a flat list.
    let nested = with_values && reply.protocol() == Protocol::Resp3;
    let write_header = |reply: &mut Reply, len: usize| {
        reply.array(if with_values && !nested { 2 * len } else { len });
    };
    let write_one = |reply: &mut Reply, field: Item<'_>, value: Item<'_>| {
        if nested {
            reply.array(2);
        }
        field.write_to(reply);
        if with_values {
            value.write_to(reply);
        }
    };
    match draws {
        Draws::Repeated(count) => {
            let is_empty = hash.random(rng).is_none();
            write_header(reply, if is_empty { 0 } else { count });
            hash.random_repeated(count, rng, |field, value| {
                write_one(reply, field, value);
                reply.flow()
            });
        }
        Draws::Distinct(count) => {
            let drawn = hash.random_distinct(count, rng);
            write_header(reply, drawn.len());
            drawn.into_iter().for_each(|(field, value)| write_one(reply, field, value));
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::{BTreeMap, BTreeSet};

    use kvasir_resp::decode::decode;
    use kvasir_resp::reply::Protocol;

    use crate::testing::events::check_events;
    use crate::testing::{Bench, check, check3, split};

    #[test]
    fn shapes() {
        check("HSET h f 7; HRANDFIELD h; HRANDFIELD h 1; HRANDFIELD h 5", ":1; $f; [$f]; [$f]");
        check("HSET h f v; HRANDFIELD h 0; HRANDFIELD h -2", ":1; []; [$f $f]");
        let with_values = "HSET h f v; HRANDFIELD h 9 WITHVALUES; HRANDFIELD h -2 withvalues; \
                           HRANDFIELD h 0 WITHVALUES";
        check(with_values, ":1; [$f $v]; [$f $v $f $v]; []");
        check3(with_values, ":1; [[$f $v]]; [[$f $v] [$f $v]]; []");
        check(
            "HSET h a 1 b 2 c 3; HRANDFIELD h 3; HRANDFIELD h 4 WITHVALUES",
            ":3; [$a $b $c]; [$a $1 $b $2 $c $3]",
        );
        check("HRANDFIELD none; HRANDFIELD none 1; HRANDFIELD none -1 WITHVALUES", "_; []; []");
        check3("HRANDFIELD none; HRANDFIELD none 1; HRANDFIELD none -1 WITHVALUES", "_; []; []");
    }

    #[test]
    fn refuses() {
        let wrong_type = "-WRONGTYPE Operation against a key holding the wrong kind of value";
        check(
            "SET s v; HRANDFIELD s; HRANDFIELD s 1; HRANDFIELD s -1 WITHVALUES; HRANDFIELD s x",
            &format!(
                "+OK; {wrong_type}; {wrong_type}; {wrong_type}; \
                 -ERR value is not an integer or out of range"
            ),
        );
        check(
            "HRANDFIELD; HRANDFIELD h 1 FOO; HRANDFIELD h 1 WITHVALUES x; HRANDFIELD h 1 1",
            "-ERR wrong number of arguments for 'hrandfield' command; -ERR syntax error; \
             -ERR syntax error; -ERR syntax error",
        );
        check(
            "HRANDFIELD h -9223372036854775808; HRANDFIELD h 5000000000000000000 WITHVALUES; \
             HRANDFIELD h -5000000000000000000 WITHVALUES; HRANDFIELD h 9223372036854775807",
            "-ERR value is out of range, value must between -9223372036854775807 and 9223372036854775807; \
             -ERR value is out of range; -ERR value is out of range; []",
        );
    }

    #[test]
    fn draws_are_fair_and_distinct() {
        for fields in [10usize, 600] {
            let mut bench = Bench::new(Protocol::Resp2);
            for field in 0..fields {
                bench.call(split(&format!("HSET h f{field} {field}"))[0].as_args());
            }
            for count in [1usize, 3, 9, 20, 599] {
                let drawn = draw(&mut bench, &format!("HRANDFIELD h {count}"));
                let distinct: BTreeSet<_> = drawn.iter().collect();
                assert_eq!((drawn.len(), distinct.len()), (count.min(fields), count.min(fields)));
            }
            let mut counts = BTreeMap::<Vec<u8>, usize>::new();
            for field in draw(&mut bench, &format!("HRANDFIELD h -{}", fields * 100)) {
                *counts.entry(field).or_default() += 1;
            }
            assert_eq!(counts.len(), fields);
            assert!(counts.values().all(|count| (40..200).contains(count)), "{counts:?}");
        }
    }

    fn draw(bench: &mut Bench, call: &str) -> Vec<Vec<u8>> {
        let (reply, _) = bench.call(split(call)[0].as_args());
        let reply = decode(&reply).expect("a reply");
        let fields = reply.as_array().expect("an array").iter();
        fields.map(|field| field.as_bytes().expect("a field").to_vec()).collect()
    }

    #[test]
    fn a_miss_is_an_event() {
        check_events("HRANDFIELD k; HRANDFIELD k 2", "keymiss k; keymiss k");
    }
}
