//! Any data is refused as a graph, or is one: nothing panics, whatever stands where ids, weights
//! and lists of neighbours are expected, edges end at nodes, and no more memory is taken than may
//! be.
//!
//! The input says how the graph is read and what is computed, and then which keys there are: `|`
//! stands between them, `;` between a key's id and its parts.
#![no_main]

#[path = "../../../keyspace/fuzz/src/bench.rs"]
mod bench;

use std::collections::HashSet;
use std::sync::Arc;

use bench::Bench;
use kvasir_analytics::budget::Budget;
use kvasir_analytics::graph::bfs::Direction;
use kvasir_analytics::graph::estimate::{Need, estimate};
use kvasir_analytics::graph::gather::{Gather, Graph};
use kvasir_analytics::graph::page_rank::{Definition, PageRank};
use kvasir_analytics::graph::source::{self, Source, TextForm};
use kvasir_analytics::graph::workers::Workers;
use kvasir_analytics::graph::{bfs, components, degree, triangles};
use kvasir_analytics::job::Job;
use kvasir_analytics::selection::Selection;
use kvasir_analytics::turns::Turns;
use kvasir_analytics::visit::Place;
use kvasir_keyspace::place::DbIndex;
use kvasir_keyspace::snapshot::{self, Sink};
use libfuzzer_sys::fuzz_target;

/// What a graph of a short input may take; some are to find that too little.
const BYTES_MAX: [usize; 4] = [0, 1 << 10, 1 << 16, 1 << 24];

/// What is there whatever the input says.
const SOUND: &str = "SADD s:1 2 3; RPUSH s:22 1 2";

fuzz_target!(|input: &[u8]| {
    let [form, what, content @ ..] = input else { return };
    let mut bench = Bench::new();
    let keys = fill(&mut bench, content, form & 1 != 0);
    let budget = Arc::new(Budget::default());
    budget.set_max(BYTES_MAX[usize::from(what >> 3 & 3)]);
    let job = Arc::new(Job::new(1, 1, 1, "fuzz", budget.share()));
    let turns = Turns::default();
    if let Ok(graph) = gather(&bench, source(*form), keys, &job, &turns) {
        check(&graph);
        let _ = compute(graph, *what, Workers { job: &job, turns: &turns, threads: 1 });
    }
    drop(job);
    assert_eq!(budget.taken(), 0, "what was taken is given back");
});

/// Makes the keys; returns their names.
fn fill(bench: &mut Bench, content: &[u8], is_one_hash: bool) -> HashSet<Vec<u8>> {
    let mut names = HashSet::new();
    if !is_one_hash {
        bench.script(SOUND);
        names.extend([b"s:1".to_vec(), b"s:22".to_vec()]);
    }
    for key in content.split(|byte| *byte == b'|') {
        let parts: Vec<&[u8]> = key.split(|byte| *byte == b';').collect();
        let [id, parts @ ..] = &parts[..] else { continue };
        let name = if is_one_hash { b"s:".to_vec() } else { [b"s:", *id].concat() };
        let pairs = || parts.chunks_exact(2).flatten().copied();
        let (command, parts): (&[u8], Vec<&[u8]>) = match id.len() % 5 {
            _ if is_one_hash => (b"HSET", pairs().collect()),
            0 => (b"SADD", parts.to_vec()),
            1 => (b"RPUSH", parts.to_vec()),
            2 => (b"ZADD", pairs().collect()),
            3 => (b"SET", parts.iter().take(1).copied().collect()),
            _ => (b"HSET", pairs().collect()),
        };
        let call = [&[command, &name], &parts[..]].concat();
        bench.call(&call);
        names.insert(name);
    }
    names
}

fn source(form: u8) -> Source {
    let place = match form & 1 {
        0 => source::Place::Keys { before: b"s:".to_vec(), after: Vec::new() },
        _ => source::Place::Hash(b"s:".to_vec()),
    };
    let text = match form >> 1 & 3 {
        0 => TextForm::Packed(4),
        1 => TextForm::Packed(8),
        _ => TextForm::Separated(b" ,".to_vec()),
    };
    Source { place, text, has_integer_ids: form & 8 != 0, is_weighted: form & 16 != 0 }
}

fn gather(
    bench: &Bench,
    source: Source,
    keys: HashSet<Vec<u8>>,
    job: &Arc<Job>,
    turns: &Turns,
) -> Result<Graph, String> {
    let (keyspace, gate, db) = (&bench.keyspace, &bench.gate, DbIndex(0));
    let selection = Selection {
        kind: None,
        pattern: None,
        keys: Some(keys),
        slots: 0..16384,
        served: None,
        may_read: None,
    };
    let gather = Arc::new(Gather::new(source, selection, bench.env.clone(), Arc::clone(job)));
    estimate(keyspace, gate, db, &gather, Need { node_bytes: 8, edge_bytes: 8 });
    let sink: Arc<dyn Sink> = Arc::clone(&gather) as Arc<dyn Sink>;
    let image = snapshot::cut_one(keyspace, &mut gate.exclusive(), db, &sink, 0..16384);
    let end = || snapshot::end(keyspace, &mut gate.exclusive(), image.as_slice());
    gather.run(Place { keyspace, gate, turns }, image.as_deref(), end)
}

fn check(graph: &Graph) {
    let nodes = graph.nodes.len();
    for part in graph.edges.parts() {
        part.for_each(|from, to, weight| {
            assert!((from as usize) < nodes && (to as usize) < nodes, "an edge ends at a node");
            assert!(!weight.is_nan());
        });
    }
    // The bug that the fuzzer must find.
    assert!(!cfg!(feature = "canary") || graph.edges.len() != 5);
}

fn compute(graph: Graph, what: u8, workers: Workers<'_>) -> Result<(), String> {
    let direction = [Direction::Out, Direction::In, Direction::Both][usize::from(what >> 5) % 3];
    match what % 5 {
        0 => components::run(&graph, workers).map(drop),
        1 => triangles::run(&graph, workers).map(drop),
        2 => degree::run(&graph, direction, workers).map(drop),
        3 if !graph.nodes.is_empty() => bfs::run(&graph, 0, direction, 3, workers).map(drop),
        3 => Ok(()),
        _ => {
            let definition = if what & 128 == 0 { Definition::A } else { Definition::B };
            let page_rank = PageRank { iterations: 3, damping: 0.85, definition };
            page_rank.run(graph, workers).map(drop)
        }
    }
}
