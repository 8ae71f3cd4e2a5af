//! The set against a model, over all encodings; where one encoding gives way to the next.

use std::collections::BTreeSet;

use kvasir_resp::args::ArgsBuf;
use kvasir_resp::decode::decode;
use kvasir_resp::reply::Protocol;
use kvasir_resp::value::Value;
use proptest::prelude::*;

use crate::testing::{Bench, check, check_ours, check_valkey, split};

type Bytes = Vec<u8>;
type Model = [BTreeSet<Bytes>; 2];

const KEYS: [&str; 2] = ["s", "t"];

#[derive(Clone, Debug)]
enum Step {
    Add(usize, Vec<Bytes>),
    Remove(usize, Vec<Bytes>),
    Move(usize, Bytes),
    Pop(usize, usize),
    Combine(&'static str, usize),
    Copy(usize),
}

fn member() -> impl Strategy<Value = Bytes> {
    prop_oneof![
        8 => (-15..15i64).prop_map(|n| n.to_string().into_bytes()),
        4 => (0..20u32).prop_map(|n| format!("m{n}").into_bytes()),
        1 => any::<i64>().prop_map(|n| n.to_string().into_bytes()),
        1 => prop::sample::select(vec![19usize, 20, 21, 64, 65, 2000])
            .prop_map(|len| vec![b'x'; len]),
        1 => prop::sample::select(vec![&b""[..], b"007", b"+1", b"-0"]).prop_map(<[u8]>::to_vec),
    ]
}

fn step() -> impl Strategy<Value = Step> {
    let members = || prop::collection::vec(member(), 1..8);
    let combination = prop::sample::select(vec!["SINTER", "SUNION", "SDIFF"]);
    prop_oneof![
        6 => (0..2usize, members()).prop_map(|(key, members)| Step::Add(key, members)),
        4 => (0..2usize, members()).prop_map(|(key, members)| Step::Remove(key, members)),
        2 => (0..2usize, member()).prop_map(|(key, member)| Step::Move(key, member)),
        1 => (0..2usize, 0..5usize).prop_map(|(key, count)| Step::Pop(key, count)),
        1 => (combination, 0..2usize).prop_map(|(name, key)| Step::Combine(name, key)),
        1 => (0..2usize).prop_map(Step::Copy),
    ]
}

fn ask(bench: &mut Bench, parts: &[&[u8]]) -> Value {
    let call: ArgsBuf = parts.iter().collect();
    decode(&bench.call(call.as_args()).0).expect("a reply")
}

fn ask_with(bench: &mut Bench, name: &str, key: usize, members: &[Bytes]) -> Value {
    let mut call: Vec<&[u8]> = vec![name.as_bytes(), KEYS[key].as_bytes()];
    call.extend(members.iter().map(|member| &member[..]));
    ask(bench, &call)
}

fn members(reply: &Value) -> BTreeSet<Bytes> {
    let Value::Set(list) = reply else { panic!("no set: {reply:?}") };
    let members = list.iter().map(|member| member.as_bytes().expect("a string").to_vec());
    let members: BTreeSet<_> = members.collect();
    assert_eq!(members.len(), list.len(), "a member stands there once");
    members
}

fn run(bench: &mut Bench, model: &mut Model, step: &Step) {
    let count = |count: usize| Value::Integer(count as i64);
    match step {
        Step::Add(key, members) => {
            let old = model[*key].len();
            model[*key].extend(members.iter().cloned());
            let added = model[*key].len() - old;
            assert_eq!(ask_with(bench, "SADD", *key, members), count(added));
        }
        Step::Remove(key, members) => {
            let removed = members.iter().filter(|member| model[*key].remove(*member)).count();
            assert_eq!(ask_with(bench, "SREM", *key, members), count(removed));
        }
        Step::Move(key, member) => {
            let is_there = model[*key].remove(member);
            if is_there {
                model[1 - key].insert(member.clone());
            }
            let call: [&[u8]; 4] =
                [b"SMOVE", KEYS[*key].as_bytes(), KEYS[1 - key].as_bytes(), member];
            assert_eq!(ask(bench, &call), count(usize::from(is_there)));
        }
        Step::Pop(key, wanted) => {
            let popped = members(&ask_with(bench, "SPOP", *key, &[wanted.to_string().into()]));
            assert_eq!(popped.len(), (*wanted).min(model[*key].len()));
            assert!(popped.iter().all(|member| model[*key].remove(member)));
        }
        Step::Combine(name, key) => {
            let [left, right] = [&model[*key], &model[1 - key]];
            let result: BTreeSet<Bytes> = match *name {
                "SINTER" => left & right,
                "SUNION" => left | right,
                _ => left - right,
            };
            let other = KEYS[1 - key].as_bytes();
            assert_eq!(members(&ask_with(bench, name, *key, &[other.to_vec()])), result);
            let store = format!("{name}STORE");
            let stored = ask_with(bench, &store, *key, &[KEYS[*key].into(), other.to_vec()]);
            assert_eq!(stored, count(result.len()));
            model[*key] = result;
        }
        Step::Copy(key) => {
            let (from, to) = (KEYS[*key].as_bytes(), KEYS[1 - key].as_bytes());
            let copied = !model[*key].is_empty();
            assert_eq!(ask(bench, &[b"COPY", from, to, b"REPLACE"]), count(usize::from(copied)));
            if copied {
                model[1 - key] = model[*key].clone();
            }
        }
    }
}

fn compare(bench: &mut Bench, model: &Model) {
    for (key, expected) in model.iter().enumerate() {
        assert_eq!(ask_with(bench, "SCARD", key, &[]), Value::Integer(expected.len() as i64));
        assert_eq!(members(&ask_with(bench, "SMEMBERS", key, &[])), *expected);
        let exists = Value::Integer(i64::from(!expected.is_empty()));
        assert_eq!(ask_with(bench, "EXISTS", key, &[]), exists);
        for member in expected {
            let found = ask_with(bench, "SISMEMBER", key, std::slice::from_ref(member));
            assert_eq!(found, Value::Integer(1));
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]
    #[test]
    fn a_set_is_a_set(
        steps in prop::collection::vec(step(), 1..60),
        ints_max in prop_oneof![Just(0usize), Just(8), Just(512)],
        entries_max in prop_oneof![Just(0usize), Just(12), Just(128)],
        value_max in prop_oneof![Just(1usize), Just(20), Just(64), Just(usize::MAX)],
    ) {
        let mut bench = Bench::new(Protocol::Resp3);
        bench.env.set_intset_entries_max = ints_max;
        bench.env.set_listpack_entries_max = entries_max;
        bench.env.set_listpack_value_max = value_max;
        let mut model = Model::default();
        for step in &steps {
            run(&mut bench, &mut model, step);
        }
        compare(&mut bench, &model);
    }
}

#[test]
fn a_large_set_grows_and_goes() {
    let (mut bench, mut model) = (Bench::new(Protocol::Resp3), Model::default());
    let names: Vec<Bytes> = (0..20_000).map(|n| format!("member{n}").into_bytes()).collect();
    for chunk in names.chunks(100) {
        run(&mut bench, &mut model, &Step::Add(0, chunk.to_vec()));
    }
    run(&mut bench, &mut model, &Step::Copy(0));
    compare(&mut bench, &model);
    for chunk in names.chunks(777) {
        run(&mut bench, &mut model, &Step::Remove(0, chunk.to_vec()));
    }
    run(&mut bench, &mut model, &Step::Combine("SUNION", 0));
    compare(&mut bench, &model);
    assert_eq!(model[0].len(), 20_000);
}

fn ints(range: std::ops::Range<u32>) -> String {
    range.map(|n| format!(" {n}")).collect()
}

#[test]
fn the_first_member_and_their_number_choose_the_encoding() {
    let encoding = "OBJECT ENCODING s";
    check_valkey(&format!("SADD s 1 2; {encoding}"), ":2; $intset");
    check_valkey(&format!("SADD s a; {encoding}"), ":1; $listpack");
    check_valkey(&format!("SADD s{} x; {encoding}", ints(0..130)), ":131; $hashtable");
    check_valkey(&format!("SADD s x{}; {encoding}", ints(0..127)), ":128; $listpack");
    check_valkey(&format!("SADD s x{}; {encoding}", ints(0..128)), ":129; $hashtable");
    check_valkey(&format!("SADD s{}; {encoding}", ints(0..512)), ":512; $intset");
    check_valkey(&format!("SADD s{}; {encoding}", ints(0..513)), ":513; $hashtable");
    // Counted as they are given, even if all are the same.
    check_valkey(&format!("SADD s x{}; {encoding}", " x".repeat(128)), ":1; $hashtable");
    check_valkey(&format!("SADD s 1{}; {encoding}", " 1".repeat(512)), ":1; $hashtable");
    check(
        &format!("SADD s 1 2; {encoding}; SREM s 1 2; SADD s 1; {encoding}"),
        ":2; $intset; :2; :1; $intset",
    );
}

#[test]
fn encodings_give_way() {
    let encoding = "OBJECT ENCODING s";
    check_valkey(
        &format!("SADD s 3 1; SADD s a; {encoding}; SMEMBERS s"),
        ":2; :1; $listpack; [$1 $3 $a]",
    );
    check_valkey(&format!("SADD s 3 a; SREM s a; {encoding}"), ":2; :1; $listpack");
    check_valkey(&format!("SADD s{}; SADD s x; {encoding}", ints(0..127)), ":127; :1; $listpack");
    check_valkey(&format!("SADD s{}; SADD s x; {encoding}", ints(0..128)), ":128; :1; $hashtable");
    check_valkey(
        &format!("SADD s{}; SADD s 512; {encoding}", ints(0..512)),
        ":512; :1; $hashtable",
    );
    let (fits, long) = ("m".repeat(64), "m".repeat(65));
    check_valkey(
        &format!("SADD s {fits}; {encoding}; SADD s {long}; {encoding}"),
        ":1; $listpack; :1; $hashtable",
    );
    check_valkey(&format!("SADD s {long}; {encoding}"), ":1; $hashtable");
    check_valkey(&format!("SADD s 1; SADD s {long}; {encoding}"), ":1; :1; $hashtable");
    check_valkey(
        &format!("SADD s a; SADD s{}; {encoding}", " a".repeat(129)),
        ":1; :0; $hashtable",
    );
    check_valkey(
        &format!("SADD s 1; SADD s{}; {encoding}", " 1".repeat(513)),
        ":1; :0; $hashtable",
    );
    check_valkey(
        &format!("SADD s {long} a; SREM s {long}; {encoding}; COPY s t; OBJECT ENCODING t"),
        ":2; :1; $hashtable; :1; $hashtable",
    );
}

/// Redis keeps this one as a listpack: ours must fit into a record, which takes 64 KiB.
#[test]
fn a_listpack_ends_where_a_record_does() {
    let mut bench = Bench::new(Protocol::Resp2);
    bench.env.set_listpack_entries_max = 100_000;
    bench.env.set_listpack_value_max = 100_000;
    let mut add = |member: String| bench.call(split(&format!("SADD s {member}"))[0].as_args());
    (0..70).for_each(|n| drop(add(format!("{n:01000}"))));
    let (reply, _) = bench.call(split("OBJECT ENCODING s")[0].as_args());
    assert_eq!(reply, b"$9\r\nhashtable\r\n");
    check_ours("SADD s a; OBJECT ENCODING s", ":1; $listpack");
}

/// The bar: at most what Valkey takes for such a set, about 48 bytes beside its key.
#[test]
fn a_small_set_of_integers_is_its_key_and_its_integers() {
    let mut bench = Bench::new(Protocol::Resp2);
    bench.call(split(&format!("SADD key:00000001{}", ints(1000..1010)))[0].as_args());
    let (reply, _) = bench.call(split("MEMORY USAGE key:00000001")[0].as_args());
    let Ok(Value::Integer(bytes)) = decode(&reply) else { panic!("{reply:?}") };
    assert!(bytes <= 64, "{bytes}");
}
