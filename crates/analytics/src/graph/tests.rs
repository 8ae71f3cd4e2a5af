//! What is computed of small random graphs, beside computations that are obviously right.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, LazyLock};

use crate::budget::Budget;
use crate::column::Cell;
use crate::graph::answer::{First, Values};
use crate::graph::bfs::Direction;
use crate::graph::edges::Edges;
use crate::graph::gather::Graph;
use crate::graph::nodes::Nodes;
use crate::graph::page_rank::{Definition, PageRank};
use crate::graph::workers::Workers;
use crate::graph::{bfs, components, degree, triangles};
use crate::job::Job;
use crate::turns::Turns;

type Pairs = Vec<(i64, i64)>;

/// Edges of a linear congruential generator, loops and repeated ones among them.
fn random_pairs(seed: u64, nodes: u64, edges: usize) -> Pairs {
    let mut state = seed;
    let mut next = || {
        state =
            state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        ((state >> 33) % nodes) as i64 * 5_000_000_000
    };
    (0..edges).map(|_| (next(), next())).collect()
}

fn graph(pairs: &Pairs) -> Graph {
    let (mut nodes, mut edges) = (Nodes::new(true), Edges::new(false));
    for (from, to) in pairs {
        let from = nodes.number(Cell::Int(*from));
        let to = nodes.number(Cell::Int(*to));
        edges.push(from, to, 1.0);
    }
    Graph { nodes, edges }
}

pub fn job(bytes: usize) -> Job {
    let budget = Arc::new(Budget::default());
    budget.set_max(bytes);
    Job::new(1, 1, 1, "test", budget.share())
}

/// Who computes for a job by one thread.
fn alone(job: &Job) -> Workers<'_> {
    static TURNS: LazyLock<Turns> = LazyLock::new(Turns::default);
    Workers { job, turns: &TURNS, threads: 1 }
}

/// Ids with their values.
fn by_id(graph: &Graph, values: &Values) -> BTreeMap<i64, f64> {
    let pairs = values.all(&graph.nodes).into_iter().map(|node| {
        let Cell::Int(id) = graph.nodes.ids.id(node as usize) else { panic!("an integer") };
        let value = match values {
            Values::Numbers(numbers) => numbers[node as usize],
            Values::Counts(counts) => counts[node as usize] as f64,
        };
        (id, value)
    });
    pairs.collect()
}

/// PageRank as its definitions read.
fn plain_ranks(pairs: &Pairs, definition: Definition, iterations: u32) -> BTreeMap<i64, f64> {
    let mut leaving: BTreeMap<i64, f64> = BTreeMap::new();
    pairs.iter().for_each(|(from, _)| *leaving.entry(*from).or_default() += 1.0);
    let all: BTreeSet<i64> = pairs.iter().flat_map(|(from, to)| [*from, *to]).collect();
    let mut ranks: BTreeMap<i64, f64> = match definition {
        Definition::A => leaving.keys().map(|node| (*node, 1.0)).collect(),
        Definition::B => all.iter().map(|node| (*node, 1.0)).collect(),
    };
    for _ in 0..iterations {
        let mut sums: BTreeMap<i64, f64> = BTreeMap::new();
        for (from, to) in pairs {
            if let Some(rank) = ranks.get(from) {
                *sums.entry(*to).or_default() += rank / leaving[from];
            }
        }
        if definition == Definition::B {
            for node in &all {
                sums.entry(*node).or_default();
            }
        }
        ranks = sums.into_iter().map(|(node, sum)| (node, 0.15 + 0.85 * sum)).collect();
    }
    ranks
}

#[test]
fn ranks_are_those_of_the_definitions() {
    let turns = Turns::default();
    turns.set_most(3);
    for seed in 0..20 {
        let pairs = random_pairs(seed, 40, 20 + 10 * seed as usize);
        for definition in [Definition::A, Definition::B] {
            let page_rank = PageRank { iterations: 7, damping: 0.85, definition };
            let job = job(1 << 30);
            let workers = Workers { job: &job, turns: &turns, threads: 3 };
            let (graph, values) = page_rank.run(graph(&pairs), workers).unwrap();
            let (ours, plain) = (by_id(&graph, &values), plain_ranks(&pairs, definition, 7));
            assert_eq!(ours.len(), plain.len(), "{seed} {definition:?}");
            for (node, rank) in &plain {
                assert!((ours[node] - rank).abs() < 1e-12, "{seed} {definition:?} {node}");
            }
        }
    }
}

#[test]
fn components_are_what_edges_join() {
    for seed in 0..20 {
        let pairs = random_pairs(seed, 60, 30);
        let (graph, job) = (graph(&pairs), job(1 << 30));
        let (values, sizes) = components::run(&graph, alone(&job)).unwrap();
        let ours = by_id(&graph, &values);
        // Labels that spread until nothing changes.
        let mut labels: BTreeMap<i64, i64> = ours.keys().map(|node| (*node, *node)).collect();
        for _ in 0..60 {
            for (from, to) in &pairs {
                let least = labels[from].min(labels[to]);
                labels.insert(*from, least);
                labels.insert(*to, least);
            }
        }
        for (one, label) in &labels {
            for (other, of_other) in &labels {
                assert_eq!(ours[one] == ours[other], label == of_other, "{seed}: {one} {other}");
            }
        }
        assert!(sizes.is_sorted_by(|one, other| one >= other));
        assert_eq!(sizes.iter().sum::<u64>() as usize, graph.nodes.len());
        let largest = ours.values().filter(|number| **number == 0.0).count();
        assert_eq!(largest as u64, sizes[0]);
    }
}

#[test]
fn distances_grow_by_one_along_edges() {
    for (seed, direction) in [(1, Direction::Out), (2, Direction::In), (3, Direction::Both)] {
        let pairs = random_pairs(seed, 50, 60);
        let (graph, job) = (graph(&pairs), job(1 << 30));
        let (values, reached) = bfs::run(&graph, 0, direction, i64::MAX, alone(&job)).unwrap();
        let Cell::Int(root) = graph.nodes.ids.id(0) else { panic!("an integer") };
        let mut plain: BTreeMap<i64, f64> = [(root, 0.0)].into();
        for distance in 1..50 {
            let before = plain.clone();
            for (from, to) in &pairs {
                let ways = match direction {
                    Direction::Out => vec![(from, to)],
                    Direction::In => vec![(to, from)],
                    Direction::Both => vec![(from, to), (to, from)],
                };
                for (from, to) in ways {
                    if before.contains_key(from) {
                        plain.entry(*to).or_insert(f64::from(distance));
                    }
                }
            }
        }
        assert_eq!(by_id(&graph, &values), plain, "{direction:?}");
        assert_eq!(reached as usize, plain.len());
    }
}

#[test]
fn triangles_and_degrees_are_counted() {
    let pairs = random_pairs(4, 25, 150);
    let (graph, job) = (graph(&pairs), job(1 << 30));
    let joined: BTreeSet<(i64, i64)> =
        pairs.iter().flat_map(|(a, b)| [(*a, *b), (*b, *a)]).collect();
    let all: Vec<i64> =
        joined.iter().map(|(a, _)| *a).collect::<BTreeSet<_>>().into_iter().collect();
    let (mut plain, mut sum) = (BTreeMap::new(), 0);
    for node in &all {
        plain.insert(*node, 0.0);
    }
    for (i, a) in all.iter().enumerate() {
        for (j, b) in all.iter().enumerate().skip(i + 1) {
            for c in &all[j + 1..] {
                if joined.contains(&(*a, *b))
                    && joined.contains(&(*b, *c))
                    && joined.contains(&(*a, *c))
                {
                    sum += 1;
                    [a, b, c].iter().for_each(|node| *plain.get_mut(*node).unwrap() += 1.0);
                }
            }
        }
    }
    let (values, triangles) = triangles::run(&graph, alone(&job)).unwrap();
    assert!(sum > 10);
    assert_eq!((by_id(&graph, &values), triangles), (plain, sum));
    let degrees = degree::run(&graph, Direction::Both, alone(&job)).unwrap();
    assert_eq!(degrees.sum(), 300.0);
    let first = degrees.first(&graph.nodes, 3, First::Greatest);
    let all = degrees.first(&graph.nodes, usize::MAX, First::Greatest);
    assert_eq!(first, all[..3]);
}

#[test]
fn what_does_not_fit_is_refused_and_what_is_not_wanted_ends() {
    let pairs = random_pairs(5, 50, 100);
    let small = job(100);
    let failed = components::run(&graph(&pairs), alone(&small)).err().unwrap();
    assert!(failed.contains("memory"), "{failed}");
    assert!(triangles::run(&graph(&pairs), alone(&small)).is_err());
    let (job, graph) = (job(1 << 30), graph(&pairs));
    job.cancel();
    let workers = alone(&job);
    for failed in [
        bfs::run(&graph, 0, Direction::Out, 9, workers).err(),
        components::run(&graph, workers).err(),
        degree::run(&graph, Direction::Out, workers).err(),
        triangles::run(&graph, workers).err(),
    ] {
        assert_eq!(failed.as_deref(), Some("cancelled"));
    }
    let page_rank = PageRank { iterations: 9, damping: 0.85, definition: Definition::B };
    assert_eq!(page_rank.run(graph, workers).err().as_deref(), Some("cancelled"));
    let late = self::job(1 << 30);
    late.limit(std::time::Duration::ZERO);
    let failed = components::run(&self::graph(&pairs), alone(&late)).err();
    assert_eq!(failed.as_deref(), Some("it takes longer than analytics-timeout"));
}
