//! Walking over a sorted set in steps: ZSCAN.

use kvasir_resp::number::{write_double, write_double_shortest};
use kvasir_resp::reply::Reply;

use crate::command::{Command, Cx, Run};
use crate::commands::options::cursor;
use crate::commands::scan_options::{Omits, ScanOptions};
use crate::effect::Effect;
use crate::error::Error;
use crate::sorted_set_value::{self, Member, SortedSet};
use crate::spec::{Argument, ArgumentKind, Flags, Group, KeyFlags, KeySpec, Spec};

pub static COMMANDS: &[&Command] = &[&ZSCAN];

static ZSCAN: Command = Command {
    spec: Spec {
        name: "zscan",
        summary: "Walks over the members and scores of a sorted set, some a call.",
        since: "2.8.0",
        group: Group::SortedSet,
        complexity: "O(1) for a call, O(N) for a whole walk, where N is the number of members.",
        arity: -3,
        flags: Flags::READONLY,
        keys: &[KeySpec::first(KeyFlags::RO.union(KeyFlags::ACCESS))],
        tips: &["nondeterministic_output"],
        arguments: &[
            Argument::key("key", 0),
            Argument::integer("cursor"),
            Argument::new("pattern", ArgumentKind::Pattern).token("MATCH").optional(),
            Argument::integer("count").token("COUNT").optional(),
            Argument::word("noscores", "NOSCORES").optional(),
        ],
        ..Spec::BLANK
    },
    run: Run::Keys(zscan),
};

fn zscan(cx: &mut Cx<'_, '_>) -> Result<Effect, Error> {
    let position = cursor(&cx.args[2])?;
    // Redis looks at the options only if there is something to scan.
    let Some(set) = sorted_set_value::read(&mut cx.view, 0)? else {
        cx.reply.array(2);
        cx.reply.bulk(b"0");
        cx.reply.array(0);
        return Ok(Effect::None);
    };
    let options = ScanOptions::parse(cx.args.from(3), Omits::Scores)?;
    let (mut entries, position) = step(set, position, options.count);
    entries.retain(|(member, _)| member.with_bytes(|member| options.accepts(member)));
    cx.reply.array(2);
    cx.reply.bulk(position.to_string().as_bytes());
    cx.reply.array(if options.omits { entries.len() } else { 2 * entries.len() });
    for (member, score) in entries {
        member.write_to(cx.reply);
        if !options.omits {
            write_score(cx.reply, set, score);
        }
    }
    Ok(Effect::None)
}

type Entry<'a> = (Member<'a>, f64);

/// `count` entries or a few more from `position` on, and where the next step goes on.
fn step(set: SortedSet<'_>, mut position: u64, count: usize) -> (Vec<Entry<'_>>, u64) {
    let mut entries = Vec::new();
    loop {
        position = set.scan(position, |member, score| entries.push((member, score)));
        if position == 0 || entries.len() >= count {
            return (entries, position);
        }
    }
}

/// Always as a string, and a large set's with 17 digits: here alone Redis kept the old form.
fn write_score(reply: &mut Reply, set: SortedSet<'_>, score: f64) {
    let mut text = Vec::new();
    match set {
        SortedSet::Packed(_) => write_double_shortest(score, &mut text),
        SortedSet::Tree(_) => write_double(score, &mut text),
    }
    reply.bulk(&text);
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use kvasir_resp::decode::decode;
    use kvasir_resp::reply::Protocol;

    use crate::testing::events::check_events;
    use crate::testing::{Bench, check, check_valkey, check3, split};

    #[test]
    fn a_small_set_at_once() {
        let script =
            "ZADD z 1 a 2.5 b; ZSCAN z 0; ZSCAN z 0 COUNT 1; ZSCAN none 0; ZSCAN none 0 FOO";
        let replies = ":2; [$0 [$a $1 $b $2.5]]; [$0 [$a $1 $b $2.5]]; [$0 []]; [$0 []]";
        check(script, replies);
        check3(script, replies);
        check(
            "ZADD z 1 aa 2 ab 3 12; ZSCAN z 0 MATCH a*; ZSCAN z 0 match 1? COUNT 5; ZSCAN z 0 MATCH x; \
             ZSCAN z 0 MATCH *",
            ":3; [$0 [$aa $1 $ab $2]]; [$0 [$12 $3]]; [$0 []]; [$0 [$aa $1 $ab $2 $12 $3]]",
        );
        check_valkey(
            "ZADD z 3.3 a 2 b; ZSCAN z 0 NOSCORES; ZSCAN z 0 COUNT 5 noscores MATCH a; ZSCAN z 0",
            ":2; [$0 [$b $a]]; [$0 [$a]]; [$0 [$b $2 $a $3.3]]",
        );
        check_valkey(
            "ZADD z 1 a; ZSCAN z 0 NOVALUES",
            ":1; -ERR NOVALUES option can only be used in HSCAN",
        );
    }

    #[test]
    fn scores_of_a_large_set_have_17_digits() {
        let long = "x".repeat(65);
        check(
            &format!("ZADD z 3.3 {long} 1e300 b; ZREM z b; ZSCAN z 0; ZSCAN z 0 MATCH b"),
            &format!(":2; :1; [$0 [${long} $3.2999999999999998]]; [$0 []]"),
        );
    }

    #[test]
    fn refuses() {
        let (invalid, syntax) = ("-ERR invalid cursor", "-ERR syntax error");
        check(
            "ZADD z 1 a; ZSCAN z 0 FOO; ZSCAN z 0 FOO 1; ZSCAN z 0 COUNT; ZSCAN z 0 COUNT 0; \
             ZSCAN z 0 COUNT -1; ZSCAN z 0 COUNT x; ZSCAN z x; ZSCAN none -",
            &format!(
                ":1; {syntax}; {syntax}; {syntax}; {syntax}; {syntax}; \
                 -ERR value is not an integer or out of range; {invalid}; {invalid}"
            ),
        );
        check(
            "SET s v; ZSCAN s 0 FOO; ZSCAN s x; ZSCAN s",
            &format!(
                "+OK; -WRONGTYPE Operation against a key holding the wrong kind of value; {invalid}; \
                 -ERR wrong number of arguments for 'zscan' command"
            ),
        );
    }

    #[test]
    fn a_walk_sees_every_member_of_a_large_set_once() {
        let mut bench = Bench::new(Protocol::Resp2);
        for member in 0..5000 {
            bench.call(split(&format!("ZADD z {member} m{member}"))[0].as_args());
        }
        for count in [1, 10, 700, 9999] {
            let (mut cursor, mut seen, mut members) = ("0".to_owned(), 0, BTreeSet::new());
            loop {
                let call = format!("ZSCAN z {cursor} COUNT {count}");
                let (reply, _) = bench.call(split(&call)[0].as_args());
                let reply = decode(&reply).expect("a reply");
                let [next, entries] = reply.as_array().expect("an array") else { panic!("{call}") };
                let entries = entries.as_array().expect("an array");
                seen += entries.len() / 2;
                members.extend(entries.chunks(2).map(|pair| pair[0].as_bytes().unwrap().to_vec()));
                cursor = String::from_utf8(next.as_bytes().unwrap().to_vec()).unwrap();
                if cursor == "0" {
                    break;
                }
            }
            assert_eq!((seen, members.len()), (5000, 5000));
        }
    }

    #[test]
    fn a_miss_is_an_event() {
        check_events("ZSCAN k 0", "keymiss k");
    }
}
