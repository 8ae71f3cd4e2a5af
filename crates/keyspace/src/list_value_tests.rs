//! The list against a model, over both encodings and the way between them.

use std::collections::VecDeque;

use kvasir_resp::args::ArgsBuf;
use kvasir_resp::decode::decode;
use kvasir_resp::reply::Protocol;
use kvasir_resp::value::Value;
use proptest::prelude::*;

use crate::testing::Bench;

type Bytes = Vec<u8>;
type Model = VecDeque<Bytes>;

#[derive(Clone, Debug)]
enum Step {
    Push(bool, Vec<Bytes>),
    Pop(bool, usize),
    Insert(bool, Bytes, Bytes),
    Set(i64, Bytes),
    Remove(i64, Bytes),
    Trim(i64, i64),
    Turn(bool, bool),
}

fn value() -> impl Strategy<Value = Bytes> {
    prop_oneof![
        8 => (0..9i32).prop_map(|n| n.to_string().into_bytes()),
        8 => proptest::collection::vec(any::<u8>(), 0..70),
        1 => any::<i64>().prop_map(|n| n.to_string().into_bytes()),
        1 => prop_oneof![Just(1000usize), Just(4096), Just(8193), Just(65_530), Just(65_536)]
            .prop_map(|len| vec![b'x'; len]),
    ]
}

fn step() -> impl Strategy<Value = Step> {
    let index = || prop_oneof![-5..5i64, -300..300i64];
    prop_oneof![
        4 => (any::<bool>(), proptest::collection::vec(value(), 1..40))
            .prop_map(|(left, values)| Step::Push(left, values)),
        3 => (any::<bool>(), prop_oneof![0..3usize, 0..60usize])
            .prop_map(|(left, count)| Step::Pop(left, count)),
        2 => (any::<bool>(), value(), value())
            .prop_map(|(before, pivot, value)| Step::Insert(before, pivot, value)),
        2 => (index(), value()).prop_map(|(index, value)| Step::Set(index, value)),
        1 => (-3..3i64, value()).prop_map(|(count, value)| Step::Remove(count, value)),
        1 => (index(), index()).prop_map(|(start, stop)| Step::Trim(start, stop)),
        1 => any::<(bool, bool)>().prop_map(|(from, to)| Step::Turn(from, to)),
    ]
}

fn ask(bench: &mut Bench, parts: &[&[u8]]) -> Value {
    let call: ArgsBuf = parts.iter().collect();
    decode(&bench.call(call.as_args()).0).expect("a reply")
}

fn integer(value: usize) -> Value {
    Value::Integer(value as i64)
}

fn push(model: &mut Model, left: bool, value: Bytes) {
    if left { model.push_front(value) } else { model.push_back(value) }
}

fn pop(model: &mut Model, left: bool) -> Option<Bytes> {
    if left { model.pop_front() } else { model.pop_back() }
}

fn bulk(value: Option<Bytes>) -> Value {
    value.map_or(Value::Null, Value::Bulk)
}

fn remove(model: &mut Model, count: i64, value: &[u8]) -> usize {
    let mut places: Vec<usize> = (0..model.len()).filter(|at| model[*at] == value).collect();
    if count < 0 {
        places.reverse();
    }
    places.truncate(if count == 0 { usize::MAX } else { count.unsigned_abs() as usize });
    places.sort_unstable();
    places.iter().rev().for_each(|at| drop(model.remove(*at)));
    places.len()
}

fn trim(model: &mut Model, start: i64, stop: i64) {
    let len = model.len() as i64;
    let place = |index: i64| if index < 0 { index + len } else { index };
    let kept = place(start).max(0)..(place(stop) + 1).min(len);
    let old = std::mem::take(model);
    let numbered = (0..).zip(old).filter(|(at, _)| kept.contains(at));
    model.extend(numbered.map(|(_, value)| value));
}

fn run(bench: &mut Bench, model: &mut Model, step: Step) {
    let number = |number: i64| number.to_string().into_bytes();
    match step {
        Step::Push(left, values) => {
            let mut call: Vec<&[u8]> = vec![if left { b"LPUSH" } else { b"RPUSH" }, b"l"];
            call.extend(values.iter().map(|value| &value[..]));
            let reply = ask(bench, &call);
            values.into_iter().for_each(|value| push(model, left, value));
            assert_eq!(reply, integer(model.len()));
        }
        Step::Pop(left, 1) => {
            let reply = ask(bench, &[if left { b"LPOP" } else { b"RPOP" }, b"l"]);
            assert_eq!(reply, bulk(pop(model, left)));
        }
        Step::Pop(left, count) => {
            let name: &[u8] = if left { b"LPOP" } else { b"RPOP" };
            let reply = ask(bench, &[name, b"l", &number(count as i64)]);
            if model.is_empty() {
                return assert_eq!(reply, Value::Null);
            }
            let taken = (0..count).map_while(|_| pop(model, left)).map(Value::Bulk);
            assert_eq!(reply, Value::Array(taken.collect()));
        }
        Step::Insert(before, pivot, value) => {
            let side: &[u8] = if before { b"BEFORE" } else { b"AFTER" };
            let reply = ask(bench, &[b"LINSERT", b"l", side, &pivot, &value]);
            match model.iter().position(|element| *element == pivot) {
                _ if model.is_empty() => assert_eq!(reply, integer(0)),
                None => assert_eq!(reply, Value::Integer(-1)),
                Some(at) => {
                    model.insert(at + usize::from(!before), value);
                    assert_eq!(reply, integer(model.len()));
                }
            }
        }
        Step::Set(index, value) => {
            let reply = ask(bench, &[b"LSET", b"l", &number(index), &value]);
            let at = if index < 0 { index + model.len() as i64 } else { index };
            match usize::try_from(at).ok().and_then(|at| model.get_mut(at)) {
                Some(element) => *element = value,
                None => assert!(matches!(reply, Value::Error(_))),
            }
        }
        Step::Remove(count, value) => {
            let reply = ask(bench, &[b"LREM", b"l", &number(count), &value]);
            assert_eq!(reply, integer(remove(model, count, &value)));
        }
        Step::Trim(start, stop) => {
            ask(bench, &[b"LTRIM", b"l", &number(start), &number(stop)]);
            trim(model, start, stop);
        }
        Step::Turn(from, to) => {
            let word = |left| if left { &b"LEFT"[..] } else { b"RIGHT" };
            let reply = ask(bench, &[b"LMOVE", b"l", b"l", word(from), word(to)]);
            let value = pop(model, from);
            value.iter().for_each(|value| push(model, to, value.clone()));
            assert_eq!(reply, bulk(value));
        }
    }
}

fn compare(bench: &mut Bench, model: &Model) {
    assert_eq!(ask(bench, &[b"LLEN", b"l"]), integer(model.len()));
    let all = model.iter().cloned().map(Value::Bulk).collect();
    assert_eq!(ask(bench, &[b"LRANGE", b"l", b"0", b"-1"]), Value::Array(all));
    assert_eq!(ask(bench, &[b"EXISTS", b"l"]), integer(usize::from(!model.is_empty())));
    let middle = model.len() / 2;
    let reply = ask(bench, &[b"LINDEX", b"l", middle.to_string().as_bytes()]);
    assert_eq!(reply, bulk(model.get(middle).cloned()));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]
    #[test]
    fn a_list_is_a_deque(
        steps in proptest::collection::vec(step(), 1..40),
        size_max in prop_oneof![Just(-1i64), Just(-2), Just(-5), Just(1), Just(3), Just(64)],
        compress_depth in 0..3usize,
    ) {
        let mut bench = Bench::new(Protocol::Resp3);
        bench.env.list_listpack_size_max = size_max;
        bench.env.list_compress_depth = compress_depth;
        let mut model = Model::new();
        for step in steps {
            run(&mut bench, &mut model, step);
        }
        compare(&mut bench, &model);
    }
}

#[test]
fn trimming_a_huge_list_is_left_to_others() {
    let mut bench = Bench::new(Protocol::Resp3);
    let values = vec![vec![b'v'; 100]; 1000];
    let mut model = Model::new();
    for _ in 0..20 {
        run(&mut bench, &mut model, Step::Push(false, values.clone()));
    }
    assert_eq!(ask(&mut bench, &[b"LTRIM", b"l", b"-10", b"-1"]), Value::Simple(b"OK".to_vec()));
    assert_eq!(bench.tally.garbage.len(), 1);
    assert_eq!(ask(&mut bench, &[b"LLEN", b"l"]), integer(10));
}
