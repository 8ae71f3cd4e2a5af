//! Walking over a hash in steps: HSCAN.

use kvasir_resp::reply::Reply;
use kvasir_structures::table::Position;

use crate::command::{Command, Cx, Run};
use crate::commands::options::cursor;
use crate::commands::scan_options::{Omits, ScanOptions};
use crate::effect::Effect;
use crate::error::Error;
use crate::hash_value::{self, Entry, Hash};
use crate::spec::{Argument, ArgumentKind, Flags, Group, KeyFlags, KeySpec, Spec};

pub static COMMANDS: &[&Command] = &[&HSCAN];

/// A call ends after this many times COUNT steps though it found less, since most may be empty.
const STEPS_PER_COUNT: usize = 10;

/// A table's positions have 48 bits.
const POSITION_MASK: u64 = (1 << 48) - 1;

static HSCAN: Command = Command {
    spec: Spec {
        name: "hscan",
        summary: "Walks over the fields and values of a hash, some a call.",
        since: "2.8.0",
        group: Group::Hash,
        complexity: "O(1) for a call, O(N) for a whole walk, where N is the number of fields.",
        arity: -3,
        flags: Flags::READONLY,
        keys: &[KeySpec::first(KeyFlags::RO.union(KeyFlags::ACCESS))],
        tips: &["nondeterministic_output"],
        arguments: &[
            Argument::key("key", 0),
            Argument::integer("cursor"),
            Argument::new("pattern", ArgumentKind::Pattern).token("MATCH").optional(),
            Argument::integer("count").token("COUNT").optional(),
            Argument::word("novalues", "NOVALUES").optional(),
        ],
        ..Spec::BLANK
    },
    run: Run::Keys(hscan),
};

fn hscan(cx: &mut Cx<'_, '_>) -> Result<Effect, Error> {
    // Whatever the cursor says is a place in any table.
    let position = Position(cursor(&cx.args[2])? & POSITION_MASK);
    // Redis looks at the options only if there is something to scan.
    let Some(hash) = hash_value::read(&mut cx.view, 0)? else {
        write(cx.reply, Position(0), &[], false);
        return Ok(Effect::None);
    };
    let options = ScanOptions::parse(cx.args.from(3), Omits::Values)?;
    let (mut entries, position) = step(hash, position, options.count);
    entries.retain(|(field, _)| field.with_bytes(|field| options.accepts(field)));
    write(cx.reply, position, &entries, !options.omits);
    Ok(Effect::None)
}

/// About `count` entries from `position` on, and where the next step goes on.
fn step(hash: Hash<'_>, mut position: Position, count: usize) -> (Vec<Entry<'_>>, Position) {
    let mut entries = Vec::new();
    for _ in 0..count.saturating_mul(STEPS_PER_COUNT) {
        let most = count - entries.len();
        position = hash.scan(position, most, |field, value| entries.push((field, value)));
        if position == Position(0) || entries.len() >= count {
            break;
        }
    }
    (entries, position)
}

fn write(reply: &mut Reply, position: Position, entries: &[Entry<'_>], with_values: bool) {
    reply.array(2);
    reply.bulk(position.0.to_string().as_bytes());
    reply.array(if with_values { 2 * entries.len() } else { entries.len() });
    for (field, value) in entries {
        field.write_to(reply);
        if with_values {
            value.write_to(reply);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use kvasir_resp::decode::decode;
    use kvasir_resp::reply::Protocol;

    use crate::testing::events::check_events;
    use crate::testing::{Bench, check, check_valkey, check_valkey3, check3, split};

    #[test]
    fn a_small_hash_at_once() {
        check(
            "HSET h a 1 b 2; HSCAN h 0; HSCAN h 0 COUNT 1",
            ":2; [$0 [$a $1 $b $2]]; [$0 [$a $1 $b $2]]",
        );
        check3("HSET h a 1 b 2; HSCAN h 0; HSCAN none 0", ":2; [$0 [$a $1 $b $2]]; [$0 []]");
        check(
            "HSET h aa 1 ab 2 12 3; HSCAN h 0 MATCH a*; HSCAN h 0 match 1? COUNT 5; HSCAN h 0 MATCH x; \
             HSCAN h 0 MATCH *",
            ":3; [$0 [$aa $1 $ab $2]]; [$0 [$12 $3]]; [$0 []]; [$0 [$aa $1 $ab $2 $12 $3]]",
        );
        check(
            "HSET h '' 1; HSCAN h 0 MATCH *; HSCAN h +0; HSCAN h 00",
            ":1; [$0 [$ $1]]; [$0 [$ $1]]; [$0 [$ $1]]",
        );
    }

    #[test]
    fn without_values() {
        check_valkey(
            "HSET h a 1 b 2; HSCAN h 0 NOVALUES; HSCAN h 0 novalues MATCH b COUNT 5; \
             HSCAN none 0 NOVALUES; HSCAN h 0 COUNT NOVALUES",
            ":2; [$0 [$a $b]]; [$0 [$b]]; [$0 []]; -ERR value is not an integer or out of range",
        );
        check_valkey3("HSET h a 1; HSCAN h 0 NOVALUES NOVALUES", ":1; [$0 [$a]]");
        check_valkey(
            "HSET h a 1; HSCAN h 0 NOSCORES",
            ":1; -ERR NOSCORES option can only be used in ZSCAN",
        );
    }

    #[test]
    fn refuses() {
        let (invalid, syntax) = ("-ERR invalid cursor", "-ERR syntax error");
        check(
            "HSCAN none 0 FOO; HSCAN none 5 COUNT x; HSCAN none x",
            &format!("[$0 []]; [$0 []]; {invalid}"),
        );
        check(
            "HSET h f v; HSCAN h 0 FOO; HSCAN h 0 FOO 1; HSCAN h 0 COUNT; HSCAN h 0 COUNT 0; \
             HSCAN h 0 COUNT -1; HSCAN h 0 COUNT x; HSCAN h 0 COUNT 1 COUNT 0",
            &format!(
                ":1; {syntax}; {syntax}; {syntax}; {syntax}; {syntax}; \
                 -ERR value is not an integer or out of range; {syntax}"
            ),
        );
        check(
            "HSET h f v; HSCAN h -; HSCAN h 0x1; HSCAN h 18446744073709551616",
            &format!(":1; {invalid}; {invalid}; {invalid}"),
        );
        check("HSET h f v; HSCAN h -0; HSCAN h +7", ":1; [$0 [$f $v]]; [$0 [$f $v]]");
        check_valkey(
            "HSET h f v; HSCAN h -1; HSCAN h ' 1'",
            &format!(":1; {invalid}; [$0 [$f $v]]"),
        );
        check(
            "SET s v; HSCAN s 0 FOO; HSCAN s x; HSCAN s",
            &format!(
                "+OK; -WRONGTYPE Operation against a key holding the wrong kind of value; {invalid}; \
                 -ERR wrong number of arguments for 'hscan' command"
            ),
        );
        let long = "v".repeat(65);
        check(
            &format!("HSET h f {long}; HSCAN h 0; HSCAN h 0 MATCH g"),
            &format!(":1; [$0 [$f ${long}]]; [$0 []]"),
        );
    }

    #[test]
    fn a_walk_sees_every_field_of_a_table_once() {
        let mut bench = Bench::new(Protocol::Resp2);
        for field in 0..5000 {
            bench.call(split(&format!("HSET h f{field} {field}"))[0].as_args());
        }
        for count in [1, 10, 700, 9999] {
            let (mut cursor, mut seen, mut fields) = ("0".to_owned(), 0, BTreeSet::new());
            loop {
                let call = format!("HSCAN h {cursor} COUNT {count}");
                let (reply, _) = bench.call(split(&call)[0].as_args());
                let reply = decode(&reply).expect("a reply");
                let [next, entries] = reply.as_array().expect("an array") else { panic!("{call}") };
                let entries = entries.as_array().expect("an array");
                assert!(entries.len() <= 2 * count);
                seen += entries.len() / 2;
                fields.extend(entries.chunks(2).map(|pair| pair[0].as_bytes().unwrap().to_vec()));
                cursor = String::from_utf8(next.as_bytes().unwrap().to_vec()).unwrap();
                if cursor == "0" {
                    break;
                }
            }
            assert_eq!((seen, fields.len()), (5000, 5000));
        }
    }

    #[test]
    fn a_miss_is_an_event() {
        check_events("HSCAN k 0", "keymiss k");
    }
}
