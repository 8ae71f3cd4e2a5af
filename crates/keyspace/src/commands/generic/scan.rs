//! Finding keys: KEYS, SCAN, RANDOMKEY.
//!
//! All of them visit slots one at a time, each locked only for its visit, so they see no one
//! moment of the whole database. KEYS passes expired keys over; SCAN and RANDOMKEY delete them
//! where they come by.

use kvasir_resp::args::{Args, ArgsBuf};
use kvasir_resp::reply::Reply;
use kvasir_structures::gate::Pass;
use kvasir_structures::glob::{self, Case};
use kvasir_structures::slot::{SLOTS, SlotGuard};
use kvasir_structures::table::Position;

use crate::command::{Command, Roam, Run};
use crate::commands::options::{cursor, integer};
use crate::database::{Database, Keyspace};
use crate::effect::Effect;
use crate::error::{Error, quoted};
use crate::expire::expire_slot;
use crate::place::Place;
use crate::spec::{Argument, ArgumentKind, Categories, Flags, Spec};
use crate::value::{Kind, Object, Record, Tag};
use crate::view::Env;

pub static COMMANDS: &[&Command] = &[&KEYS, &SCAN, &RANDOMKEY];

/// A cursor is the slot, then this many bits of position in the slot's table.
const POSITION_BITS: u32 = 48;
/// Steps that SCAN takes per key that it was asked for, before it returns with fewer.
pub const STEPS_PER_KEY: u64 = 10;
/// Keys that are collected before the room for them is first looked at.
const KEYS_PER_LOOK: usize = 1024;
/// Expired keys that a visit to a slot deletes.
const EXPIRED_MAX: usize = 64;
/// Expired keys that RANDOMKEY draws before it looks at all keys instead.
const DRAWS_MAX: usize = 100;

static KEYS: Command = Command {
    spec: Spec {
        name: "keys",
        summary: "Lists the keys that match a pattern.",
        since: "1.0.0",
        complexity: "O(N) where N is the number of keys in the database.",
        arity: 2,
        flags: Flags::READONLY,
        categories: Categories::DANGEROUS.union(Categories::KEYSPACE),
        tips: &["request_policy:all_shards", "nondeterministic_output_order"],
        arguments: &[Argument::new("pattern", ArgumentKind::Pattern)],
        ..Spec::BLANK
    },
    run: Run::Roam(keys),
};

fn keys(cx: &mut Roam<'_>) -> Result<Effect, Error> {
    let pattern = Pattern::new(&cx.args[1]);
    let Roam { keyspace, pass, env, reply, .. } = cx;
    let header = reply.deferred_array();
    let mut count = 0;
    for (slot, _) in used_slots(keyspace, keyspace.database(cx.db, pass)) {
        lock(keyspace, pass, slot)?.for_each(|record| {
            if is_live(record, env) && pattern.matches(record.key()) {
                count += 1;
                reply.bulk(record.key());
            }
        });
        if reply.is_cut() {
            break;
        }
    }
    reply.set_count(header, count);
    Ok(Effect::None)
}

/// Fails where a busy script has the slot.
fn lock<'a>(
    keyspace: &Keyspace,
    pass: &'a Pass<'_>,
    slot: &'a Slot,
) -> Result<SlotGuard<'a, Object>, Error> {
    let guard = slot.lock_unless(pass, || keyspace.busy.is_busy());
    guard.ok_or_else(|| keyspace.busy.error())
}

type Slot = kvasir_structures::slot::Slot<Object>;

/// The slots with keys, as far as one can see from outside, with their numbers.
fn used_slots<'a>(
    keyspace: &'a Keyspace,
    database: &'a Database,
) -> impl Iterator<Item = (&'a Slot, u16)> {
    let slots = if database.was_used() { &database.slots()[..] } else { &[] };
    let is_seen = |(slot, number): &(&Slot, u16)| !slot.is_empty() && !keyspace.hidden.has(*number);
    slots.iter().zip(0..).filter(is_seen)
}

fn is_live(record: Record<'_>, env: &Env) -> bool {
    record.expiry_ms().is_none_or(|expiry_ms| !env.has_passed(expiry_ms))
}

/// A glob; the one for everything costs nothing.
struct Pattern<'a>(Option<&'a [u8]>);

impl<'a> Pattern<'a> {
    fn new(pattern: &'a [u8]) -> Pattern<'a> {
        Pattern((pattern != b"*").then_some(pattern))
    }

    fn matches(&self, key: &[u8]) -> bool {
        self.0.is_none_or(|pattern| glob::matches(pattern, key, Case::Sensitive))
    }
}

static SCAN: Command = Command {
    spec: Spec {
        name: "scan",
        summary: "Walks through the keys of a database, some at each call.",
        since: "2.8.0",
        complexity: "O(1) for a call, O(N) for a whole walk where N is the number of keys.",
        arity: -2,
        flags: Flags::READONLY,
        categories: Categories::KEYSPACE,
        tips: &["nondeterministic_output", "request_policy:special"],
        history: &[("6.0.0", "Takes `TYPE`.")],
        arguments: &[
            Argument::integer("cursor"),
            Argument::new("pattern", ArgumentKind::Pattern).token("MATCH").optional(),
            Argument::integer("count").token("COUNT").optional(),
            Argument::string("type").token("TYPE").since("6.0.0").optional(),
        ],
        ..Spec::BLANK
    },
    run: Run::Roam(scan),
};

/// A key that is there from the first call to the last is returned at least once: slots come in
/// order, and within a slot `Table::scan` gives this promise.
fn scan(cx: &mut Roam<'_>) -> Result<Effect, Error> {
    let mut cursor = cursor(&cx.args[1])?;
    let options = Options::parse(cx.args.from(2), |_, _| Ok(false))?;
    let database = cx.keyspace.database(cx.db, cx.pass);
    let (mut found, mut seen, mut steps) = (ArgsBuf::new(), 0, options.count * STEPS_PER_KEY);
    let mut next_look = KEYS_PER_LOOK;
    while seen < options.count && steps > 0 {
        let Some((slot, position)) = next_place(cx.keyspace, database, cursor) else {
            cursor = 0;
            break;
        };
        let place = Place { db: cx.db, slot };
        if position == Position(0) {
            expire(cx, place);
        }
        let through =
            Steps { keyspace: cx.keyspace, pass: cx.pass, env: cx.env, options: &options };
        let (next, count) = through.take(place, position, &mut found)?;
        seen += count;
        cursor = cursor_after(slot, next);
        steps -= 1;
        if cursor == 0 || !has_room(&found, &mut next_look, cx.reply) {
            break;
        }
    }
    cx.reply.array(2);
    cx.reply.bulk(cursor.to_string().as_bytes());
    cx.reply.array(found.len());
    found.as_args().iter().for_each(|key| cx.reply.bulk(key));
    Ok(Effect::None)
}

/// Whether the reply has room for so many keys; looked at whenever they are twice as many.
fn has_room(found: &ArgsBuf, next_look: &mut usize, reply: &mut Reply) -> bool {
    if found.len() < *next_look {
        return true;
    }
    *next_look = 2 * found.len();
    reply.has_room_for(found.as_args().len_bytes())
}

/// Deletes what has expired in a slot, as whoever meets it does: but not where that is up to
/// somebody else, nor amid calls whose changes are to be told of as one.
fn expire(cx: &mut Roam<'_>, place: Place) {
    if !cx.env.is_paused && cx.tally.entry.is_empty() {
        expire_slot(cx.keyspace, cx.pass, place, cx.env, cx.tally, EXPIRED_MAX);
    }
}

/// What a call goes through slots with.
#[derive(Clone, Copy)]
pub struct Steps<'a> {
    pub keyspace: &'a Keyspace,
    pub pass: &'a Pass<'a>,
    pub env: &'a Env,
    pub options: &'a Options<'a>,
}

impl Steps<'_> {
    /// Takes one step through a slot; says where to go on, and how many keys there were. Fails
    /// where a busy script has the slot.
    pub fn take(
        self,
        place: Place,
        position: Position,
        found: &mut ArgsBuf,
    ) -> Result<(Position, u64), Error> {
        let Steps { keyspace, pass, env, options } = self;
        let mut seen = 0;
        let guard = lock(keyspace, pass, keyspace.database(place.db, pass).slot(place.slot))?;
        let next = guard.scan(position, |record| {
            seen += 1;
            if options.wants(record) && is_live(record, env) {
                let _ = found.push(record.key());
            }
        });
        Ok((next, seen))
    }
}

/// Where a cursor points, or the start of the next slot that has keys; `None` at the end.
fn next_place(keyspace: &Keyspace, database: &Database, cursor: u64) -> Option<(u16, Position)> {
    let first = (cursor >> POSITION_BITS) as usize;
    if !database.was_used() || first >= SLOTS {
        return None;
    }
    let mut numbered = database.slots().iter().enumerate().skip(first);
    let is_seen =
        |(number, slot): &(usize, &Slot)| !slot.is_empty() && !keyspace.hidden.has(*number as u16);
    let (slot, _) = numbered.find(is_seen)?;
    let position = if slot == first { cursor & ((1 << POSITION_BITS) - 1) } else { 0 };
    Some((slot as u16, Position(position)))
}

fn cursor_after(slot: u16, next: Position) -> u64 {
    match next {
        Position(0) if slot as usize == SLOTS - 1 => 0,
        Position(0) => (u64::from(slot) + 1) << POSITION_BITS,
        Position(position) => u64::from(slot) << POSITION_BITS | position,
    }
}

/// SCAN's options.
pub struct Options<'a> {
    pattern: Pattern<'a>,
    pub count: u64,
    kind: Option<Kind>,
}

impl<'a> Options<'a> {
    /// `other`: whether it has taken a word that is none of SCAN's, and its value.
    pub fn parse(
        words: Args<'a>,
        mut other: impl FnMut(&[u8], &[u8]) -> Result<bool, Error>,
    ) -> Result<Options<'a>, Error> {
        let mut options = Options { pattern: Pattern(None), count: 10, kind: None };
        let mut words = words.iter();
        while let Some(word) = words.next() {
            let value = words.next().ok_or(Error::SYNTAX)?;
            if word.eq_ignore_ascii_case(b"count") {
                let count = integer(value)?;
                options.count = u64::try_from(count).map_err(|_| Error::SYNTAX)?;
                if count == 0 {
                    return Err(Error::SYNTAX);
                }
            } else if word.eq_ignore_ascii_case(b"match") {
                options.pattern = Pattern::new(value);
            } else if word.eq_ignore_ascii_case(b"type") {
                let unknown = || Error::quoting("ERR unknown type name '", value, "'");
                options.kind = Some(Kind::from_name(quoted(value)).ok_or_else(unknown)?);
            } else if !other(word, value)? {
                return Err(Error::SYNTAX);
            }
        }
        // More is not possible, and leaves room for multiplying.
        options.count = options.count.min(u64::from(u32::MAX));
        Ok(options)
    }

    fn wants(&self, record: Record<'_>) -> bool {
        self.kind.is_none_or(|wanted| wanted == Tag::of(record).kind())
            && self.pattern.matches(record.key())
    }
}

static RANDOMKEY: Command = Command {
    spec: Spec {
        name: "randomkey",
        summary: "Draws a key of the database.",
        since: "1.0.0",
        complexity: "O(1): a walk over the counts of the slots.",
        arity: 1,
        flags: Flags::READONLY,
        categories: Categories::KEYSPACE,
        tips: &["request_policy:all_shards", "nondeterministic_output"],
        ..Spec::BLANK
    },
    run: Run::Roam(randomkey),
};

fn randomkey(cx: &mut Roam<'_>) -> Result<Effect, Error> {
    let drawn = (0..DRAWS_MAX).find_map(|_| draw(cx).transpose()).transpose()?;
    let drawn = if drawn.is_none() { draw_of_all(cx)? } else { drawn };
    match drawn {
        Some(key) => cx.reply.bulk(&key),
        None => cx.reply.null(),
    }
    Ok(Effect::None)
}

/// One of all keys; `None` if it has expired, or was deleted while we went there.
fn draw(cx: &mut Roam<'_>) -> Result<Option<Vec<u8>>, Error> {
    let database = cx.keyspace.database(cx.db, cx.pass);
    let len = cx.keyspace.visible_len(cx.db, cx.pass);
    if len == 0 {
        return Ok(None);
    }
    let mut index = cx.rng.below(len);
    for (slot, number) in used_slots(cx.keyspace, database) {
        if index >= slot.len() {
            index -= slot.len();
            continue;
        }
        let guard = lock(cx.keyspace, cx.pass, slot)?;
        let record = guard.nth(index);
        let drawn = record.filter(|record| is_live(*record, cx.env));
        let (drawn, is_dead) = (drawn.map(|record| record.key().to_vec()), record.is_some());
        drop(guard);
        if drawn.is_none() && is_dead {
            expire(cx, Place { db: cx.db, slot: number });
        }
        return Ok(drawn);
    }
    Ok(None)
}

/// One of the live keys, for when most have expired: the n-th replaces the choice made before
/// with probability 1/n, so all are as likely in the end.
fn draw_of_all(cx: &mut Roam<'_>) -> Result<Option<Vec<u8>>, Error> {
    let (mut chosen, mut count) = (None, 0);
    for (slot, _) in used_slots(cx.keyspace, cx.keyspace.database(cx.db, cx.pass)) {
        lock(cx.keyspace, cx.pass, slot)?.for_each(|record| {
            if is_live(record, cx.env) {
                count += 1;
                if cx.rng.below(count) == 0 {
                    chosen = Some(record.key().to_vec());
                }
            }
        });
    }
    Ok(chosen)
}

#[cfg(test)]
mod tests {
    use std::collections::{BTreeMap, BTreeSet};

    use kvasir_resp::args::ArgsBuf;
    use kvasir_resp::decode::decode;
    use kvasir_resp::reply::Protocol;
    use kvasir_resp::value::Value;

    use crate::testing::{Bench, check, check_ours, check_valkey, check3};

    fn call(bench: &mut Bench, words: &[&str]) -> Value {
        let args: ArgsBuf = words.iter().collect();
        decode(&bench.call(args.as_args()).0).expect("one reply")
    }

    /// A whole SCAN, with `between` after every call.
    fn scan(
        bench: &mut Bench,
        options: &[&str],
        mut between: impl FnMut(&mut Bench),
    ) -> Vec<String> {
        let (mut cursor, mut keys) = ("0".to_string(), Vec::new());
        loop {
            let reply = call(bench, &[&["SCAN", &cursor[..]], options].concat());
            let text = |value: &Value| String::from_utf8(value.as_bytes().unwrap().into()).unwrap();
            let parts = reply.as_array().unwrap();
            keys.extend(parts[1].as_array().unwrap().iter().map(text));
            cursor = text(&parts[0]);
            if cursor == "0" {
                return keys;
            }
            between(bench);
        }
    }

    #[test]
    fn keys_that_match() {
        check("KEYS *; SET k v; KEYS *; KEYS k?; KEYS [j-l]", "[]; +OK; [$k]; []; [$k]");
        check("MSET one 1 two 2; KEYS t*; KEYS *e; KEYS x", "+OK; [$two]; [$one]; []");
        check("SET k v PXAT 1; KEYS *", "+OK; []");
        check3("SET k v; KEYS *", "+OK; [$k]");
    }

    #[test]
    fn scan_and_its_options() {
        check("SCAN 0; SCAN 0 MATCH x COUNT 5 TYPE zset", "[$0 []]; [$0 []]");
        check_ours(
            "SET k v; SCAN 0; SCAN 0 TYPE STRING; SCAN 0 TYPE hash; SCAN 0 MATCH j",
            "+OK; [$0 [$k]]; [$0 [$k]]; [$0 []]; [$0 []]",
        );
        check("SET k v; SCAN 0 COUNT 100 TYPE ZSet MATCH * COUNT 5", "+OK; [$0 []]");
        check3("SET k v; SCAN 0 COUNT 100 MATCH k", "+OK; [$0 [$k]]");
        check("SET k v PXAT 1; SCAN 0", "+OK; [$0 []]");
    }

    #[test]
    fn scan_refuses() {
        let (syntax, invalid) = ("-ERR syntax error", "-ERR invalid cursor");
        for options in ["COUNT 0", "COUNT -5", "MATCH", "FOO", "COUNT 5 MATCH", "FOO 1"] {
            check(&format!("SCAN 0 {options}"), syntax);
        }
        check("SCAN 0 COUNT x", "-ERR value is not an integer or out of range");
        for cursor in ["x", "1a", "18446744073709551616", "0x0", "-", "+", "'1 '"] {
            check(&format!("SCAN {cursor}"), invalid);
        }
        check("SCAN x COUNT 0", invalid);
        // Redis 7.0 finds nothing of a type that there is not, and takes any number.
        check_valkey(
            "SCAN 0 TYPE foo; SCAN 0 TYPE foo COUNT 0; SCAN 0 COUNT 0 TYPE foo; SCAN ''; SCAN -1",
            &format!(
                "-ERR unknown type name 'foo'; -ERR unknown type name 'foo'; {syntax}; {invalid}; \
                 {invalid}"
            ),
        );
    }

    #[test]
    fn any_number_is_a_cursor() {
        check(
            "SCAN 00; SCAN +0; SCAN -0; SCAN 18446744073709551615",
            "[$0 []]; [$0 []]; [$0 []]; [$0 []]",
        );
        check_valkey(
            "SCAN ' 0'; SCAN '\t+7'; SCAN -01; SCAN -9223372036854775809",
            "[$0 []]; [$0 []]; [$0 []]; [$0 []]",
        );
        check_ours(
            "SET k v; SCAN 18446744073709551615; SCAN 4611686018427387904",
            "+OK; [$0 []]; [$0 []]",
        );
    }

    #[test]
    fn a_whole_scan_finds_every_key_once() {
        let mut bench = Bench::new(Protocol::Resp2);
        let names: BTreeSet<String> = (0..5000)
            .map(|key| if key % 2 == 0 { format!("k{key}") } else { format!("{{tag}}{key}") })
            .collect();
        for name in &names {
            call(&mut bench, &["SET", name, "v"]);
        }
        for count in ["1", "7", "1000", "9223372036854775807"] {
            let found = scan(&mut bench, &["COUNT", count], |_| {});
            assert_eq!(found.len(), names.len());
            assert_eq!(found.into_iter().collect::<BTreeSet<_>>(), names);
        }
        let found = scan(&mut bench, &["MATCH", "{tag}1*", "TYPE", "string"], |_| {});
        assert_eq!(found.len(), names.iter().filter(|name| name.starts_with("{tag}1")).count());
    }

    #[test]
    fn a_scan_finds_what_stays_while_other_keys_come_and_go() {
        let mut bench = Bench::new(Protocol::Resp2);
        let stay: BTreeSet<String> = (0..1000).map(|key| format!("{{tag}}stays{key}")).collect();
        for name in &stay {
            call(&mut bench, &["SET", name, "v"]);
        }
        let mut turn = 0;
        let found = scan(&mut bench, &[], |bench| {
            turn += 1;
            for key in turn * 20..turn * 20 + 40 {
                call(bench, &["SET", &format!("{{tag}}goes{key}"), "v"]);
                call(bench, &["DEL", &format!("{{tag}}goes{}", key / 2)]);
            }
        });
        assert!(found.into_iter().collect::<BTreeSet<_>>().is_superset(&stay));
    }

    #[test]
    fn randomkey_draws_live_keys() {
        check("RANDOMKEY; SET k v; RANDOMKEY", "_; +OK; $k");
        check("SET k v PXAT 1; RANDOMKEY", "+OK; _");
        check3("RANDOMKEY", "_");
    }

    #[test]
    fn randomkey_draws_all_keys_alike() {
        let mut bench = Bench::new(Protocol::Resp2);
        for key in ["a", "b", "c", "{a}1", "{a}2"] {
            call(&mut bench, &["SET", key, "v"]);
        }
        let mut counts = BTreeMap::new();
        for _ in 0..5000 {
            let key = call(&mut bench, &["RANDOMKEY"]).as_bytes().unwrap().to_vec();
            *counts.entry(key).or_insert(0) += 1;
        }
        assert!(counts.len() == 5 && counts.values().all(|count| (800..1200).contains(count)));
    }

    #[test]
    fn randomkey_finds_the_live_ones_among_many_expired() {
        let mut bench = Bench::new(Protocol::Resp2);
        for key in 0..20000 {
            call(&mut bench, &["SET", &format!("gone{key}"), "v", "PXAT", "1"]);
        }
        call(&mut bench, &["SET", "k", "v"]);
        for _ in 0..20 {
            assert_eq!(call(&mut bench, &["RANDOMKEY"]).as_bytes(), Some(&b"k"[..]));
        }
    }
}
