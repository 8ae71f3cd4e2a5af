//! The ordered set against a model: a sorted vector.

use std::collections::BTreeMap;

use proptest::prelude::*;

use super::{Direction, OrderedSet, tree};

type Model = BTreeMap<Vec<u8>, f64>;

fn sorted(model: &Model) -> Vec<(Vec<u8>, f64)> {
    let mut all: Vec<_> = model.iter().map(|(member, score)| (member.clone(), *score)).collect();
    all.sort_by(|one, other| {
        one.1.partial_cmp(&other.1).expect("numbers").then(one.0.cmp(&other.0))
    });
    all
}

fn contents(set: &OrderedSet, direction: Direction) -> Vec<(Vec<u8>, f64)> {
    let members = set.range(0..set.len(), direction);
    assert_eq!(members.len(), set.len());
    members.map(|(member, score)| (member.to_vec(), score)).collect()
}

/// Everything that can be asked, compared with the model.
fn check_all(set: &OrderedSet, model: &Model) {
    let mut expected = sorted(model);
    assert_eq!(set.len(), expected.len());
    assert_eq!(contents(set, Direction::Ascending), expected);
    for (rank, (member, score)) in expected.iter().enumerate() {
        assert_eq!((set.rank(member), set.score(member)), (Some(rank), Some(*score)));
        for or_equal in [false, true] {
            let below = |other: &f64| other < score || or_equal && other == score;
            let count = expected.iter().filter(|(_, other)| below(other)).count();
            assert_eq!(set.count_by_score(*score, or_equal), count);
        }
    }
    expected.reverse();
    assert_eq!(contents(set, Direction::Descending), expected);
    assert_eq!(scan_all(set), *model);
}

fn scan_all(set: &OrderedSet) -> Model {
    let (mut seen, mut position) = (Model::new(), 0);
    loop {
        position = set.scan(position, |member, score| {
            assert_eq!(
                seen.insert(member.to_vec(), score),
                None,
                "seen once while nothing changes"
            );
        });
        if position == 0 {
            return seen;
        }
    }
}

#[derive(Clone, Debug)]
enum Step {
    Insert(Vec<u8>, f64),
    Remove(Vec<u8>),
    RemoveRank(usize),
    TakePicture,
    DropPicture,
}

fn step() -> impl Strategy<Value = Step> {
    let member = prop_oneof![
        8 => (0..600u32).prop_map(|n| format!("{n}").into_bytes()),
        1 => (250..260usize).prop_map(|len| vec![b'x'; len]),
        1 => Just(Vec::new()),
    ];
    let score = prop_oneof![
        (-20..20i32).prop_map(f64::from),
        (-1e9..1e9f64),
        prop::sample::select(vec![0.0, -0.0, f64::INFINITY, f64::NEG_INFINITY, 1e-310, -1e-310]),
    ];
    prop_oneof![
        6 => (member.clone(), score).prop_map(|(member, score)| Step::Insert(member, score)),
        2 => member.prop_map(Step::Remove),
        1 => (0..1000usize).prop_map(Step::RemoveRank),
        1 => Just(Step::TakePicture),
        1 => Just(Step::DropPicture),
    ]
}

proptest! {
    #[test]
    fn behaves_as_its_model(steps in prop::collection::vec(step(), 1..1500)) {
        let (mut set, mut model) = (OrderedSet::new(), Model::new());
        let mut pictures = Vec::new();
        for step in steps {
            match step {
                Step::TakePicture => pictures.push((set.picture(), sorted(&model))),
                Step::DropPicture => check_pictures(pictures.pop()),
                Step::Insert(member, score) => {
                    let old = set.insert(&member, score);
                    prop_assert_eq!(old, model.insert(member, score));
                }
                Step::Remove(member) => prop_assert_eq!(set.remove(&member), model.remove(&member)),
                Step::RemoveRank(rank) => {
                    let found = sorted(&model).into_iter().nth(rank);
                    let Some((member, score)) = found else { continue };
                    set.remove_rank(rank, |seen, at| assert_eq!((seen, at), (&member[..], score)));
                    model.remove(&member);
                }
            }
        }
        check_all(&set, &model);
        check_all(&set.clone(), &model);
        drop(set);
        check_pictures(pictures);
    }
}

/// That they show what was there when they were taken, the sign of 0 included.
fn check_pictures(pictures: impl IntoIterator<Item = (OrderedSet, Vec<(Vec<u8>, f64)>)>) {
    let exactly = |(member, score): (Vec<u8>, f64)| (member, score.to_bits());
    for (picture, expected) in pictures {
        let shown = contents(&picture, Direction::Ascending).into_iter().map(exactly);
        assert!(shown.eq(expected.into_iter().map(exactly)));
    }
}

#[test]
fn a_picture_costs_little_and_keeps_what_it_shows() {
    let mut set = OrderedSet::new();
    (0..100_000).for_each(|n| _ = set.insert(&name(n), scatter(n) as f64));
    assert!(set.tree.own_leaves() > 1000);
    let picture = set.picture();
    let expected = contents(&picture, Direction::Descending);
    assert_eq!(set.tree.own_leaves(), 0, "all is shared");
    set.insert(b"new", 500.5);
    assert!(set.tree.own_leaves() <= tree::CHILDREN_MAX + 1, "{}", set.tree.own_leaves());
    (0..50_000).for_each(|n| _ = set.remove(&name(n)));
    (0..100_000).for_each(|n| _ = set.insert(&name(n), n as f64));
    assert!(contents(&picture, Direction::Descending) == expected);
    let other = std::thread::spawn(move || drop(picture));
    let more = (0..100_000).map(|n| set.insert(&name(n), -(n as f64)));
    assert!(more.enumerate().all(|(n, old)| old == Some(n as f64)));
    other.join().unwrap();
    assert_eq!(set.len(), 100_001);
}

fn name(n: u64) -> Vec<u8> {
    format!("{n:016}").into_bytes()
}

/// A permutation of the numbers below 2^20, without a generator's state.
fn scatter(n: u64) -> u64 {
    n.wrapping_mul(0x9e37_79b1) & 0xf_ffff
}

#[test]
fn grows_and_shrinks_in_every_order() {
    const MEMBERS: u64 = 30_000;
    let orders: [fn(u64) -> u64; 4] = [|n| n, |n| MEMBERS - n, scatter, |n| scatter(n) % 7];
    for order in orders {
        let (mut set, mut model) = (OrderedSet::new(), Model::new());
        for n in 0..MEMBERS {
            set.insert(&name(n), order(n) as f64);
            model.insert(name(n), order(n) as f64);
        }
        let expected = sorted(&model);
        assert_eq!(contents(&set, Direction::Ascending), expected);
        for rank in [0, 1, 127, 128, 129, 9_999, 29_998, 29_999] {
            assert_eq!(set.rank(&expected[rank].0), Some(rank));
            let (member, score) = set.range(rank..rank + 1, Direction::Descending).next().unwrap();
            assert_eq!((member, score), (&expected[rank].0[..], expected[rank].1));
        }
        for n in (0..MEMBERS).filter(|n| n % 97 != 0) {
            assert_eq!(
                set.remove(&name(scatter(n) % MEMBERS)).is_some(),
                model.remove(&name(scatter(n) % MEMBERS)).is_some()
            );
        }
        check_small(&set, &model);
        while !set.is_empty() {
            set.remove_rank(set.len() / 2, |member, _| model.remove(member));
        }
        assert!(model.is_empty());
    }
}

fn check_small(set: &OrderedSet, model: &Model) {
    assert_eq!(contents(set, Direction::Ascending), sorted(model));
    assert_eq!(scan_all(set), *model);
}

#[test]
fn counts_by_member() {
    let mut set = OrderedSet::new();
    for n in 0..1000 {
        set.insert(&name(2 * n), 0.0);
    }
    for n in 0..1000 {
        assert_eq!(set.count_by_member(&name(2 * n), false), n as usize);
        assert_eq!(set.count_by_member(&name(2 * n), true), n as usize + 1);
        assert_eq!(set.count_by_member(&name(2 * n + 1), true), n as usize + 1);
    }
}

#[test]
fn a_scan_sees_what_stays_while_the_set_changes() {
    let mut set = OrderedSet::new();
    for n in 0..5_000 {
        set.insert(&name(n), 1.0);
    }
    for grows in [true, false] {
        let (mut seen, mut position, mut turn) = (Model::new(), 0, 0);
        loop {
            position = set.scan(position, |member, score| {
                seen.insert(member.to_vec(), score);
            });
            if position == 0 {
                break;
            }
            for n in 5_000 + turn * 200..5_200 + turn * 200 {
                _ = if grows { set.insert(&name(n), 2.0) } else { set.remove(&name(n)) };
            }
            turn += 1;
        }
        assert!((0..5_000).all(|n| seen.contains_key(&name(n))), "grows: {grows}");
    }
}

/// Valkey 9.1 takes 77 bytes for such a member, Redis 7.0 about 110.
#[test]
fn a_member_of_16_bytes_takes_45() {
    const MEMBERS: u64 = 200_000;
    let orders: [fn(u64) -> u64; 2] = [|n| n, scatter];
    for order in orders {
        let mut set = OrderedSet::new();
        for n in 0..MEMBERS {
            set.insert(&name(n), order(n) as f64);
        }
        let each = set.allocated_bytes() as f64 / MEMBERS as f64;
        assert!(each < 45.0, "{each} bytes a member");
    }
}
