//! The hash against a model, over both encodings.

use std::collections::{BTreeMap, HashMap};

use kvasir_resp::args::{Args, ArgsBuf};
use kvasir_resp::decode::decode;
use kvasir_resp::reply::Protocol;
use kvasir_resp::value::Value;
use proptest::prelude::*;

use crate::testing::Bench;

type Bytes = Vec<u8>;

#[derive(Clone, Debug)]
enum Step {
    Set(Vec<(Bytes, Bytes)>),
    SetNew(Bytes, Bytes),
    Delete(Vec<Bytes>),
    Get(Bytes),
}

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
        4 => proptest::collection::vec(field(), 1..6).prop_map(Step::Delete),
        2 => field().prop_map(Step::Get),
    ]
}

fn ask(bench: &mut Bench, parts: &[&[u8]]) -> Value {
    let call: ArgsBuf = parts.iter().collect();
    let args: Args<'_> = call.as_args();
    decode(&bench.call(args).0).expect("a reply")
}

fn run(bench: &mut Bench, model: &mut HashMap<Bytes, Bytes>, step: &Step) {
    let count = |count: usize| Value::Integer(count as i64);
    match step {
        Step::Set(pairs) => {
            let mut call: Vec<&[u8]> = vec![b"HSET", b"h"];
            pairs.iter().for_each(|(field, value)| call.extend([&field[..], &value[..]]));
            let old = model.len();
            model.extend(pairs.iter().cloned());
            assert_eq!(ask(bench, &call), count(model.len() - old));
        }
        Step::SetNew(field, value) => {
            let free = !model.contains_key(field);
            model.entry(field.clone()).or_insert_with(|| value.clone());
            assert_eq!(ask(bench, &[b"HSETNX", b"h", field, value]), count(usize::from(free)));
        }
        Step::Delete(fields) => {
            let mut call: Vec<&[u8]> = vec![b"HDEL", b"h"];
            call.extend(fields.iter().map(|field| &field[..]));
            let deleted = fields.iter().filter(|field| model.remove(*field).is_some()).count();
            assert_eq!(ask(bench, &call), count(deleted));
        }
        Step::Get(field) => {
            let value = model.get(field).cloned().map_or(Value::Null, Value::Bulk);
            assert_eq!(ask(bench, &[b"HGET", b"h", field]), value);
        }
    }
}

fn compare(bench: &mut Bench, model: &HashMap<Bytes, Bytes>) {
    assert_eq!(ask(bench, &[b"HLEN", b"h"]), Value::Integer(model.len() as i64));
    let Value::Map(pairs) = ask(bench, &[b"HGETALL", b"h"]) else { panic!("a map") };
    let bytes = |value: &Value| value.as_bytes().expect("a string").to_vec();
    let ours: BTreeMap<_, _> =
        pairs.iter().map(|(field, value)| (bytes(field), bytes(value))).collect();
    assert_eq!(pairs.len(), ours.len(), "a field stands there once");
    assert_eq!(ours, model.clone().into_iter().collect());
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
