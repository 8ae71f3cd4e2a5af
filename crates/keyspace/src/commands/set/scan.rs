//! Walking over a set in steps: SSCAN.

use kvasir_structures::table::Position;

use crate::command::{Command, Cx, Run};
use crate::commands::options::cursor;
use crate::commands::scan_options::{Omits, ScanOptions};
use crate::effect::Effect;
use crate::error::Error;
use crate::set_value::{self, Member, Set};
use crate::spec::{Argument, ArgumentKind, Flags, Group, KeyFlags, KeySpec, Spec};

pub static COMMANDS: &[&Command] = &[&SSCAN];

static SSCAN: Command = Command {
    spec: Spec {
        name: "sscan",
        summary: "Walks over the members of a set, some a call.",
        since: "2.8.0",
        group: Group::Set,
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
        ],
        ..Spec::BLANK
    },
    run: Run::Keys(sscan),
};

fn sscan(cx: &mut Cx<'_, '_>) -> Result<Effect, Error> {
    // Whatever the cursor says is a place in any set.
    let position = Position(cursor(&cx.args[2])?);
    let set = set_value::read(&mut cx.view, 0)?;
    // Redis looks at the options only if there is something to scan.
    let (mut members, position) = match set {
        None => (Vec::new(), Position(0)),
        Some(set) => {
            let options = ScanOptions::parse(cx.args.from(3), Omits::Nothing)?;
            let (mut members, position) = step(set, position, options.count);
            members.retain(|member| options.accepts(&member.text()));
            (members, position)
        }
    };
    cx.reply.array(2);
    cx.reply.bulk(position.0.to_string().as_bytes());
    cx.reply.array(members.len());
    members.drain(..).for_each(|member| set_value::write(cx.reply, member));
    Ok(Effect::None)
}

/// About `count` members from `position` on, and where the next step goes on.
fn step(set: Set<'_>, mut position: Position, count: usize) -> (Vec<Member<'_>>, Position) {
    let mut members = Vec::new();
    // Each step sees a page, and few pages are empty.
    for _ in 0..count {
        position = set.scan(position, count - members.len(), |member| members.push(member));
        if position == Position(0) || members.len() >= count {
            break;
        }
    }
    (members, position)
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
        check("SADD s 3 1 2; SSCAN s 0; SSCAN s 0 COUNT 1", ":3; [$0 [$1 $2 $3]]; [$0 [$1 $2 $3]]");
        check3("SADD s a; SSCAN s 0; SSCAN none 0", ":1; [$0 [$a]]; [$0 []]");
        check_valkey(
            "SADD s b2 b1 12; SSCAN s 0 MATCH b*; SSCAN s 0 match 1? COUNT 5; SSCAN s 0 MATCH *; \
             SSCAN s 0 MATCH x",
            ":3; [$0 [$b2 $b1]]; [$0 [$12]]; [$0 [$b2 $b1 $12]]; [$0 []]",
        );
        check("SADD s 12; SSCAN s -0; SSCAN s 00 MATCH 1?", ":1; [$0 [$12]]; [$0 [$12]]");
    }

    #[test]
    fn refuses() {
        let (invalid, syntax) = ("-ERR invalid cursor", "-ERR syntax error");
        check(
            "SSCAN none 0 FOO; SSCAN none 5 COUNT x; SSCAN none x; SSCAN none",
            &format!(
                "[$0 []]; [$0 []]; {invalid}; \
                 -ERR wrong number of arguments for 'sscan' command"
            ),
        );
        check(
            "SADD s a; SSCAN s 0 FOO; SSCAN s 0 FOO 1; SSCAN s 0 COUNT; SSCAN s 0 COUNT 0; \
             SSCAN s 0 COUNT x; SSCAN s 1x",
            &format!(
                ":1; {syntax}; {syntax}; {syntax}; {syntax}; \
                 -ERR value is not an integer or out of range; {invalid}"
            ),
        );
        check(
            "SET t v; SSCAN t 0 FOO; SSCAN t x",
            &format!(
                "+OK; -WRONGTYPE Operation against a key holding the wrong kind of value; {invalid}"
            ),
        );
        check_valkey(
            "SADD s a; SSCAN s 0 NOVALUES; SSCAN s 0 COUNT 5 noscores; SSCAN s 0 COUNT x NOVALUES",
            ":1; -ERR NOVALUES option can only be used in HSCAN; \
             -ERR NOSCORES option can only be used in ZSCAN; \
             -ERR value is not an integer or out of range",
        );
    }

    #[test]
    fn a_walk_sees_every_member_of_a_table_once() {
        let mut bench = Bench::new(Protocol::Resp2);
        for member in 0..5000 {
            bench.call(split(&format!("SADD s m{member}"))[0].as_args());
        }
        for count in [1, 10, 700, 9999] {
            let (mut cursor, mut seen, mut members) = ("0".to_owned(), 0, BTreeSet::new());
            loop {
                let call = format!("SSCAN s {cursor} COUNT {count}");
                let (reply, _) = bench.call(split(&call)[0].as_args());
                let reply = decode(&reply).expect("a reply");
                let [next, some] = reply.as_array().expect("an array") else { panic!("{call}") };
                let some = some.as_array().expect("an array");
                assert!(some.len() <= count);
                seen += some.len();
                members.extend(some.iter().map(|member| member.as_bytes().unwrap().to_vec()));
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
        check_events("SSCAN k 0", "keymiss k");
    }
}
