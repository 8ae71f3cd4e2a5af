//! The quicklist against a deque of byte strings.

use std::collections::VecDeque;
use std::ops::ControlFlow;

use kvasir_structures::quicklist::{End, NodeMax, Quicklist};
use proptest::prelude::*;

type Model = VecDeque<Vec<u8>>;

#[derive(Clone, Debug)]
enum Step {
    Push(End, Vec<u8>),
    PushMany(End, usize),
    Insert(usize, End, Vec<u8>),
    Set(usize, Vec<u8>),
    RemoveRange(usize, usize),
    RemoveMatching(Vec<u8>, usize, End),
}

fn end() -> impl Strategy<Value = End> {
    prop_oneof![Just(End::Head), Just(End::Tail)]
}

fn value() -> impl Strategy<Value = Vec<u8>> {
    prop_oneof![
        6 => (0..6i32).prop_map(|n| n.to_string().into_bytes()),
        6 => proptest::collection::vec(any::<u8>(), 0..80),
        2 => (100..3000usize).prop_map(|len| vec![b'x'; len]),
        1 => prop_oneof![Just(4096usize), Just(4097), Just(8192), Just(8193), Just(70_000)]
            .prop_map(|len| vec![b'y'; len]),
    ]
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        6 => (end(), value()).prop_map(|(end, value)| Step::Push(end, value)),
        3 => (end(), 1..2000usize).prop_map(|(end, count)| Step::PushMany(end, count)),
        6 => (any::<usize>(), end(), value())
            .prop_map(|(index, side, value)| Step::Insert(index, side, value)),
        4 => (any::<usize>(), value()).prop_map(|(index, value)| Step::Set(index, value)),
        3 => (any::<usize>(), prop_oneof![0..3usize, 0..3000usize])
            .prop_map(|(start, count)| Step::RemoveRange(start, count)),
        2 => (value(), prop_oneof![Just(1usize), Just(3), Just(usize::MAX)], end())
            .prop_map(|(value, count, start)| Step::RemoveMatching(value, count, start)),
    ]
}

fn push(list: &mut Quicklist, model: &mut Model, end: End, value: Vec<u8>) {
    list.push(end, &value);
    match end {
        End::Head => model.push_front(value),
        End::Tail => model.push_back(value),
    }
}

fn remove_from(model: &mut Model, value: &[u8], count: usize, start: End) -> usize {
    let mut places: Vec<usize> = (0..model.len()).filter(|at| model[*at] == value).collect();
    if start == End::Tail {
        places.reverse();
    }
    places.truncate(count);
    places.sort_unstable();
    places.iter().rev().for_each(|at| drop(model.remove(*at)));
    places.len()
}

fn run(list: &mut Quicklist, model: &mut Model, step: Step) {
    match step {
        Step::Push(end, value) => push(list, model, end, value),
        Step::PushMany(end, count) => {
            (0..count).for_each(|n| push(list, model, end, (n % 7).to_string().into_bytes()));
        }
        Step::Insert(index, side, value) if !model.is_empty() => {
            let index = index % model.len();
            list.insert(index, side, &value);
            model.insert(index + usize::from(side == End::Tail), value);
        }
        Step::Set(index, value) if !model.is_empty() => {
            let index = index % model.len();
            list.set(index, &value);
            model[index] = value;
        }
        Step::RemoveRange(start, count) if !model.is_empty() => {
            let start = start % model.len();
            let range = start..(start + count).min(model.len());
            let removed = list.remove_range(range.clone());
            assert!(removed.len() <= range.len());
            model.drain(range);
        }
        Step::RemoveMatching(value, count, start) => {
            let removed = list.remove_matching(&value, count, start);
            assert_eq!(removed, remove_from(model, &value, count, start));
        }
        _ => {}
    }
}

fn elements(list: &Quicklist, start: End, from: usize, count: usize) -> Vec<Vec<u8>> {
    let mut elements = Vec::new();
    let _ = list.visit(start, from, |entry| {
        if elements.len() == count {
            return ControlFlow::Break(());
        }
        elements.push(entry.to_vec());
        ControlFlow::Continue(())
    });
    elements
}

fn compare(list: &Quicklist, model: &Model, index: usize) {
    assert_eq!(list.len(), model.len());
    assert_eq!(list.is_empty(), model.is_empty());
    assert!(elements(list, End::Head, 0, usize::MAX).iter().eq(model));
    let (from, count) = (index % (model.len() + 1), index % 100);
    let expected: Vec<_> = model.iter().skip(from).take(count).cloned().collect();
    assert_eq!(elements(list, End::Head, from, count), expected);
    let behind = model.len().saturating_sub(from + 1);
    let expected: Vec<_> = model.iter().rev().skip(behind).take(count).cloned().collect();
    if from < model.len() {
        assert_eq!(elements(list, End::Tail, from, count), expected);
    }
}

proptest! {
    #[test]
    fn a_quicklist_is_a_deque(
        steps in proptest::collection::vec(step(), 1..40),
        setting in prop_oneof![Just(-1i64), Just(-2), Just(-5), Just(1), Just(4), Just(128)],
        compress_depth in 0..3usize,
        index in any::<usize>(),
    ) {
        let mut list = Quicklist::new(NodeMax::from_setting(setting), compress_depth);
        let mut model = Model::new();
        let (mut copy, copied_at) = ((list.clone(), model.clone()), index % steps.len());
        for (number, step) in steps.into_iter().enumerate() {
            if number == copied_at {
                copy = (list.clone(), model.clone());
            }
            run(&mut list, &mut model, step);
            prop_assert_eq!(list.len(), model.len());
        }
        compare(&list, &model, index);
        compare(&copy.0, &copy.1, index);
        let range = 0..list.len();
        list.remove_range(range);
        compare(&list, &Model::new(), index);
        prop_assert_eq!(list.part_count(), 0);
    }
}

fn filled(setting: i64, compress_depth: usize, count: usize, value: &[u8]) -> Quicklist {
    let mut list = Quicklist::new(NodeMax::from_setting(setting), compress_depth);
    (0..count).for_each(|_| list.push(End::Tail, value));
    list
}

#[test]
fn nodes_keep_to_their_limit_and_waste_nothing() {
    // An entry of 100 bytes takes 103: 79 of them and the frame of 7 are 8,144 of 8,192 bytes.
    let list = filled(-2, 0, 79_000, &[b'x'; 100]);
    assert_eq!(list.part_count(), 1_000);
    let used = 79_000 * 103;
    assert!(list.allocated_bytes() < used + used / 50, "{}", list.allocated_bytes());
    assert_eq!(filled(4, 0, 1_000, b"7").part_count(), 250);
    assert_eq!(filled(1, 0, 10, b"7").part_count(), 10);
    assert_eq!(filled(-5, 0, 3, &[b'x'; 65_537]).part_count(), 3);
}

#[test]
fn inner_nodes_are_compressed() {
    let (plain, compressed) = (filled(-2, 0, 79_000, &[7; 100]), filled(-2, 2, 79_000, &[7; 100]));
    assert!(compressed.allocated_bytes() < plain.allocated_bytes() / 10);
    let (plain, compressed) = (filled(-2, 0, 100, &[7; 9_000]), filled(-2, 1, 100, &[7; 9_000]));
    assert!(compressed.allocated_bytes() < plain.allocated_bytes() / 10);
}

#[test]
fn removing_from_the_middle_gives_memory_back() {
    let mut list = filled(-2, 0, 79_000, &[b'x'; 100]);
    let removed = list.remove_range(10..78_990);
    assert_eq!(list.len(), 20);
    assert_eq!(removed.part_count(), 998);
    assert!(list.allocated_bytes() < 4_000, "{}", list.allocated_bytes());
}

#[test]
fn insertion_splits_and_merges() {
    let mut list = filled(4, 0, 8, b"x");
    assert_eq!(list.part_count(), 2);
    // [4][4] to [3][2][4], then to [2][2][4].
    list.insert(2, End::Head, b"y");
    list.remove_range(0..1);
    assert_eq!(list.part_count(), 3);
    // The last one is split, the first two find together: [4][3][2].
    list.insert(6, End::Head, b"y");
    assert_eq!(list.part_count(), 3);
    assert_eq!(list.len(), 9);
}

#[test]
fn a_large_element_stands_alone() {
    let mut list = filled(-2, 0, 50, &[b'x'; 100]);
    list.set(20, &[b'z'; 9_000]);
    assert_eq!((list.part_count(), list.len()), (3, 50));
    list.set(20, &[b'z'; 10_000]);
    assert_eq!((list.part_count(), list.len()), (3, 50));
    // A short one that takes its place joins a neighbour.
    list.set(20, b"short");
    assert_eq!((list.part_count(), list.len()), (2, 50));
}
