//! The hash against a model, over both encodings, while fields expire.

use std::collections::{BTreeMap, HashMap};

use kvasir_resp::args::{Args, ArgsBuf};
use kvasir_resp::decode::decode;
use kvasir_resp::reply::Protocol;
use kvasir_resp::value::Value;
use proptest::prelude::*;

use crate::place::DbIndex;
use crate::testing::Bench;

type Bytes = Vec<u8>;

#[derive(Clone, Debug)]
enum Step {
    Set(Vec<(Bytes, Bytes)>),
    SetNew(Bytes, Bytes),
    SetExpiring(Vec<(Bytes, Bytes)>, u64),
    Expire(Vec<Bytes>, u64),
    Persist(Bytes),
    Delete(Vec<Bytes>),
    Get(Bytes),
    Wait(u64),
    /// A visit of the expiry cycle.
    ExpireAll,
}

/// Values with the times at which they die.
type Model = HashMap<Bytes, (Bytes, Option<u64>)>;

fn field() -> impl Strategy<Value = Bytes> {
    prop_oneof![
        8 => (0..30i32).prop_map(|n| n.to_string().into_bytes()),
        8 => (0..30i32).prop_map(|n| format!("f{n}").into_bytes()),
        1 => Just(b"".to_vec()),
        1 => Just(b"007".to_vec()),
        1 => (i64::MAX - 3..=i64::MAX).prop_map(|n| (-n).to_string().into_bytes()),
    ]
}

fn value() -> impl Strategy<Value = Bytes> {
    prop_oneof![
        8 => any::<i64>().prop_map(|n| n.to_string().into_bytes()),
        8 => proptest::collection::vec(any::<u8>(), 0..30),
        // About every limit there is; where one of them is met, the table takes over.
        1 => (18usize..23).prop_map(|len| vec![b'v'; len]),
        1 => prop_oneof![Just(16_383usize), Just(16_384), Just(65_536)]
            .prop_map(|len| vec![b'x'; len]),
    ]
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        4 => proptest::collection::vec((field(), value()), 1..5).prop_map(Step::Set),
        1 => (field(), value()).prop_map(|(field, value)| Step::SetNew(field, value)),
        1 => (proptest::collection::vec((field(), value()), 1..4), 1..500u64)
            .prop_map(|(pairs, ms)| Step::SetExpiring(pairs, ms)),
        1 => (proptest::collection::vec(field(), 1..4), 0..500u64)
            .prop_map(|(fields, ms)| Step::Expire(fields, ms)),
        1 => field().prop_map(Step::Persist),
        4 => proptest::collection::vec(field(), 1..6).prop_map(Step::Delete),
        2 => field().prop_map(Step::Get),
        2 => (0..300u64).prop_map(Step::Wait),
        1 => Just(Step::ExpireAll),
    ]
}

fn ask(bench: &mut Bench, parts: &[&[u8]]) -> Value {
    let call: ArgsBuf = parts.iter().collect();
    let args: Args<'_> = call.as_args();
    decode(&bench.call(args).0).expect("a reply")
}

fn run(bench: &mut Bench, model: &mut Model, step: &Step) {
    let count = |count: usize| Value::Integer(count as i64);
    let now_ms = bench.env.now_ms;
    match step {
        Step::Set(pairs) => {
            let mut call: Vec<&[u8]> = vec![b"HSET", b"h"];
            pairs.iter().for_each(|(field, value)| call.extend([&field[..], &value[..]]));
            let old = model.len();
            model.extend(pairs.iter().map(|(field, value)| (field.clone(), (value.clone(), None))));
            assert_eq!(ask(bench, &call), count(model.len() - old));
        }
        Step::SetNew(field, value) => {
            let free = !model.contains_key(field);
            model.entry(field.clone()).or_insert_with(|| (value.clone(), None));
            assert_eq!(ask(bench, &[b"HSETNX", b"h", field, value]), count(usize::from(free)));
        }
        Step::SetExpiring(pairs, ms) => {
            let (time, len) = (ms.to_string().into_bytes(), pairs.len().to_string().into_bytes());
            let mut call: Vec<&[u8]> = vec![b"HSETEX", b"h", b"PX", &time, b"FIELDS", &len];
            pairs.iter().for_each(|(field, value)| call.extend([&field[..], &value[..]]));
            let dies = Some(now_ms + ms);
            model.extend(pairs.iter().map(|(field, value)| (field.clone(), (value.clone(), dies))));
            assert_eq!(ask(bench, &call), count(1));
        }
        Step::Expire(fields, ms) => {
            let (time, len) = (ms.to_string().into_bytes(), fields.len().to_string().into_bytes());
            let mut call: Vec<&[u8]> = vec![b"HPEXPIRE", b"h", &time, b"FIELDS", &len];
            call.extend(fields.iter().map(|field| &field[..]));
            let replies = fields.iter().map(|field| expire(model, field, now_ms, *ms));
            let replies = Value::Array(replies.map(Value::Integer).collect());
            assert_eq!(ask(bench, &call), replies);
        }
        Step::Persist(field) => {
            let old = model.get_mut(field).map(|(_, dies)| dies.take());
            let reply = old.map_or(-2, |dies| if dies.is_some() { 1 } else { -1 });
            let call: [&[u8]; 5] = [b"HPERSIST", b"h", b"FIELDS", b"1", field];
            assert_eq!(ask(bench, &call), Value::Array(vec![Value::Integer(reply)]));
        }
        Step::Delete(fields) => {
            let mut call: Vec<&[u8]> = vec![b"HDEL", b"h"];
            call.extend(fields.iter().map(|field| &field[..]));
            let deleted = fields.iter().filter(|field| model.remove(*field).is_some()).count();
            assert_eq!(ask(bench, &call), count(deleted));
        }
        Step::Get(field) => {
            let value =
                model.get(field).map_or(Value::Null, |(value, _)| Value::Bulk(value.clone()));
            assert_eq!(ask(bench, &[b"HGET", b"h", field]), value);
        }
        Step::Wait(ms) => {
            bench.env.now_ms += ms;
            model.retain(|_, (_, dies)| dies.is_none_or(|dies| dies > bench.env.now_ms));
        }
        Step::ExpireAll => bench.expire_all(DbIndex(0)),
    }
}

/// HPEXPIRE's reply for a field.
fn expire(model: &mut Model, field: &Bytes, now_ms: u64, ms: u64) -> i64 {
    match model.get_mut(field) {
        None => -2,
        Some(_) if ms == 0 => {
            model.remove(field);
            2
        }
        Some((_, dies)) => {
            *dies = Some(now_ms + ms);
            1
        }
    }
}

fn compare(bench: &mut Bench, model: &Model) {
    let exists = Value::Integer(i64::from(!model.is_empty()));
    assert_eq!(ask(bench, &[b"EXISTS", b"h"]), exists);
    assert_eq!(ask(bench, &[b"HLEN", b"h"]), Value::Integer(model.len() as i64));
    let Value::Map(pairs) = ask(bench, &[b"HGETALL", b"h"]) else { panic!("a map") };
    let bytes = |value: &Value| value.as_bytes().expect("a string").to_vec();
    let ours: BTreeMap<_, _> =
        pairs.iter().map(|(field, value)| (bytes(field), bytes(value))).collect();
    assert_eq!(pairs.len(), ours.len(), "a field stands there once");
    let values = model.iter().map(|(field, (value, _))| (field.clone(), value.clone()));
    assert_eq!(ours, values.collect());
    for (field, (_, dies)) in model {
        let call: [&[u8]; 5] = [b"HPEXPIRETIME", b"h", b"FIELDS", b"1", field];
        let dies = dies.map_or(-1, |dies| dies as i64);
        assert_eq!(ask(bench, &call), Value::Array(vec![Value::Integer(dies)]));
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]
    #[test]
    fn a_hash_is_a_map(
        steps in proptest::collection::vec(step(), 1..60),
        entries_max in prop_oneof![Just(0usize), Just(8), Just(512)],
        value_max in prop_oneof![Just(20usize), Just(64), Just(usize::MAX)],
    ) {
        let mut bench = Bench::new(Protocol::Resp3);
        bench.env.hash_listpack_entries_max = entries_max;
        bench.env.hash_listpack_value_max = value_max;
        let mut model = HashMap::new();
        for step in &steps {
            run(&mut bench, &mut model, step);
            if matches!(step, Step::Wait(_)) {
                compare(&mut bench, &model);
            }
        }
        compare(&mut bench, &model);
    }
}

#[test]
fn a_large_hash_grows_and_goes() {
    let (mut bench, mut model) = (Bench::new(Protocol::Resp3), HashMap::new());
    let names: Vec<Bytes> = (0..20_000).map(|n| format!("field{n}").into_bytes()).collect();
    for chunk in names.chunks(100) {
        let pairs = chunk.iter().map(|name| (name.clone(), name.clone())).collect();
        run(&mut bench, &mut model, &Step::Set(pairs));
    }
    compare(&mut bench, &model);
    for chunk in names.chunks(777) {
        run(&mut bench, &mut model, &Step::Delete(chunk.to_vec()));
    }
    compare(&mut bench, &model);
    assert_eq!(ask(&mut bench, &[b"HRANDFIELD", b"h"]), Value::Null);
}

fn memory(bench: &mut Bench, key: &[u8]) -> usize {
    let Value::Integer(bytes) = ask(bench, &[b"MEMORY", b"USAGE", key]) else { panic!("a size") };
    bytes as usize
}

/// Valkey 9.1 takes 56 bytes for a field of 16 and a value of 8, and 94 if the field expires.
#[test]
fn a_field_of_a_large_hash_takes_little_memory() {
    let mut bench = Bench::new(Protocol::Resp3);
    let len = 200_000;
    for n in 0..len {
        let (field, value) = (format!("field:{n:010}"), format!("{n:08}"));
        ask(&mut bench, &[b"HSET", b"plain", field.as_bytes(), value.as_bytes()]);
        let words = ["HSETEX", "expiring", "EX", "1000", "FIELDS", "1", &field, &value];
        ask(&mut bench, &words.map(str::as_bytes));
    }
    let per_field = ["plain", "expiring"].map(|key| memory(&mut bench, key.as_bytes()) / len);
    assert!(per_field[0] < 36 && per_field[1] < 46, "{per_field:?}");
}

/// Valkey 9.1 takes 780 bytes for such a hash.
#[test]
fn a_small_hash_whose_fields_expire_takes_little_memory() {
    let mut bench = Bench::new(Protocol::Resp3);
    for n in 0..10 {
        let field = format!("field:{n:010}");
        let words = ["HSETEX", "h:12345", "EX", "1000", "FIELDS", "1", &field, "12345678"];
        ask(&mut bench, &words.map(str::as_bytes));
    }
    assert!(memory(&mut bench, b"h:12345") < 440, "{}", memory(&mut bench, b"h:12345"));
}

/// However many fields die at once, no look at the hash deletes more than some pages of them.
#[test]
fn dead_fields_go_in_small_steps() {
    let mut bench = Bench::new(Protocol::Resp3);
    bench.env.now_ms = 1;
    for n in 0..50_000 {
        let field = n.to_string();
        let words = ["HSETEX", "h", "PX", "9", "FIELDS", "1", &field, "v"];
        ask(&mut bench, &words.map(str::as_bytes));
    }
    bench.env.now_ms = 10;
    let mut before = 0;
    for call in [&b"HGET"[..], b"HSETNX", b"HEXISTS", b"TYPE"] {
        let words: &[&[u8]] = match call {
            b"HSETNX" => &[call, b"h", b"new", b"v"],
            b"TYPE" => &[call, b"h"],
            _ => &[call, b"h", b"7"],
        };
        ask(&mut bench, words);
        let deleted = bench.tally.fields_expired - before;
        before = bench.tally.fields_expired;
        // HSETNX looks twice.
        assert!(deleted > 0 && deleted <= 2 * 8 * 96, "{deleted}");
    }
    assert_eq!(ask(&mut bench, &[b"HLEN", b"h"]).as_integer().map(|len| len > 1), Some(true));
    let pairs = vec![(Value::Bulk(b"new".to_vec()), Value::Bulk(b"v".to_vec()))];
    assert_eq!(ask(&mut bench, &[b"HGETALL", b"h"]), Value::Map(pairs));
    assert_eq!(ask(&mut bench, &[b"HRANDFIELD", b"h"]), Value::Bulk(b"new".to_vec()));
    bench.expire_all(DbIndex(0));
    assert_eq!(
        (bench.tally.fields_expired, ask(&mut bench, &[b"HLEN", b"h"])),
        (50_000, Value::Integer(1))
    );
}
