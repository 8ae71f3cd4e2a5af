//! Drawing members: ZRANDMEMBER.

use kvasir_resp::reply::Reply;

use super::range::{write_entry, write_header};
use crate::command::{Command, Cx, Run};
use crate::commands::draw_options::Draws;
use crate::effect::Effect;
use crate::error::Error;
use crate::rng::Rng;
use crate::sorted_set_value::{self, SortedSet};
use crate::spec::{Argument, Flags, Group, KeyFlags, KeySpec, Spec};

pub static COMMANDS: &[&Command] = &[&ZRANDMEMBER];

static ZRANDMEMBER: Command = Command {
    spec: Spec {
        name: "zrandmember",
        summary: "Returns members drawn at random, with their scores if wanted.",
        since: "6.2.0",
        group: Group::SortedSet,
        complexity: "O(M*log(N)) where N is the size of the sorted set and M the number of members \
                     returned.",
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
                    Argument::word("withscores", "WITHSCORES").optional(),
                ],
            )
            .optional(),
        ],
        ..Spec::BLANK
    },
    run: Run::Keys(zrandmember),
};

fn zrandmember(cx: &mut Cx<'_, '_>) -> Result<Effect, Error> {
    if cx.args.len() > 2 {
        return draw(cx);
    }
    match sorted_set_value::read(&mut cx.view, 0)? {
        Some(set) => set.at(cx.rng.below(set.len())).0.write_to(cx.reply),
        None => cx.reply.null(),
    }
    Ok(Effect::None)
}

fn draw(cx: &mut Cx<'_, '_>) -> Result<Effect, Error> {
    let (draws, with_scores) = Draws::parse_with(cx.args.from(2), b"withscores")?;
    match sorted_set_value::read(&mut cx.view, 0)? {
        Some(set) => write(set, draws, with_scores, cx.rng, cx.reply),
        None => cx.reply.array(0),
    }
    Ok(Effect::None)
}

fn write(set: SortedSet<'_>, draws: Draws, with_scores: bool, rng: &mut Rng, reply: &mut Reply) {
    let len = set.len();
    let write_one = |reply: &mut Reply, rank: usize| {
        let (member, score) = set.at(rank);
        write_entry(reply, member, with_scores.then_some(score));
    };
    match draws {
        Draws::Repeated(count) => {
            write_header(reply, count, with_scores);
            let _ = (0..count).try_for_each(|_| {
                write_one(reply, rng.below(len));
                reply.flow()
            });
        }
        Draws::Distinct(count) => {
            let ranks = ranks(count, len, rng);
            write_header(reply, ranks.len(), with_scores);
            ranks.into_iter().for_each(|rank| write_one(reply, rank));
        }
    }
}

/// `count` ranks below `len`, in any order, none of them twice.
fn ranks(count: usize, len: usize, rng: &mut Rng) -> Vec<usize> {
    if count < len / 3 {
        return rng.distinct(count, |rng| rng.below(len), |rank| *rank);
    }
    // All of them are written from the highest score down, as Redis walks.
    rng.some_of((0..len).rev().collect(), count)
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
        let script = "ZADD z 1.5 m; ZRANDMEMBER z; ZRANDMEMBER z 1; ZRANDMEMBER z 5; ZRANDMEMBER z 0; \
                      ZRANDMEMBER z -2; ZRANDMEMBER none; ZRANDMEMBER none 1; \
                      ZRANDMEMBER none -1 WITHSCORES";
        check(script, ":1; $m; [$m]; [$m]; []; [$m $m]; _; []; []");
        check3(script, ":1; $m; [$m]; [$m]; []; [$m $m]; _; []; []");
        let with_scores = "ZADD z 1.5 m; ZRANDMEMBER z 9 WITHSCORES; ZRANDMEMBER z -2 withscores; \
                           ZRANDMEMBER z 0 WITHSCORES";
        check(with_scores, ":1; [$m $1.5]; [$m $1.5 $m $1.5]; []");
        check3(with_scores, ":1; [[$m ,1.5]]; [[$m ,1.5] [$m ,1.5]]; []");
        check("ZADD z 1 a 2 b 3 c; ZRANDMEMBER z 3", ":3; [$c $b $a]");
    }

    #[test]
    fn refuses() {
        let wrong_type = "-WRONGTYPE Operation against a key holding the wrong kind of value";
        check(
            "SET s v; ZRANDMEMBER s; ZRANDMEMBER s 1; ZRANDMEMBER s -1 WITHSCORES; ZRANDMEMBER s x; \
             ZRANDMEMBER",
            &format!(
                "+OK; {wrong_type}; {wrong_type}; {wrong_type}; \
                 -ERR value is not an integer or out of range; \
                 -ERR wrong number of arguments for 'zrandmember' command"
            ),
        );
        check(
            "ZRANDMEMBER z 1 FOO; ZRANDMEMBER z 1 WITHSCORES x; ZRANDMEMBER z -9223372036854775808; \
             ZRANDMEMBER z 5000000000000000000 WITHSCORES; ZRANDMEMBER z 9223372036854775807",
            "-ERR syntax error; -ERR syntax error; \
             -ERR value is out of range, value must between -9223372036854775807 and \
             9223372036854775807; \
             -ERR value is out of range; []",
        );
    }

    #[test]
    fn draws_are_fair_and_distinct() {
        for members in [10usize, 600] {
            let mut bench = Bench::new(Protocol::Resp2);
            for member in 0..members {
                bench.call(split(&format!("ZADD z {member} m{member}"))[0].as_args());
            }
            for count in [1usize, 3, 9, 20, 599] {
                let drawn = draw(&mut bench, &format!("ZRANDMEMBER z {count}"));
                let distinct: BTreeSet<_> = drawn.iter().collect();
                let expected = count.min(members);
                assert_eq!((drawn.len(), distinct.len()), (expected, expected));
            }
            let mut counts = BTreeMap::<Vec<u8>, usize>::new();
            for member in draw(&mut bench, &format!("ZRANDMEMBER z -{}", members * 100)) {
                *counts.entry(member).or_default() += 1;
            }
            assert_eq!(counts.len(), members);
            assert!(counts.values().all(|count| (40..200).contains(count)), "{counts:?}");
        }
    }

    fn draw(bench: &mut Bench, call: &str) -> Vec<Vec<u8>> {
        let (reply, _) = bench.call(split(call)[0].as_args());
        let reply = decode(&reply).expect("a reply");
        let members = reply.as_array().expect("an array").iter();
        members.map(|member| member.as_bytes().expect("a member").to_vec()).collect()
    }

    #[test]
    fn a_miss_is_an_event() {
        check_events("ZRANDMEMBER k; ZRANDMEMBER k 2", "keymiss k; keymiss k");
    }
}
