//! Components: which nodes are connected, whatever the direction of edges.

use crate::graph::answer::Values;
use crate::graph::gather::{Graph, no_memory};
use crate::job::Job;

/// Bytes that a node takes: whom it belongs to, how many belong to it, its answer, its order.
pub const NODE_BYTES: usize = 24;

/// For each node the number of its component, from 0, the largest, on; those of one size in the
/// order of their smallest ids. And how large each is.
pub fn run(graph: &Graph, job: &Job) -> Result<(Values, Vec<u64>), String> {
    let nodes = graph.nodes.len();
    if !job.share.take(NODE_BYTES * nodes) {
        return Err(no_memory(job.share.bytes() + NODE_BYTES * nodes));
    }
    job.begin("connecting", graph.edges.pieces().len() as u64);
    let mut owners: Vec<u32> = (0..nodes as u32).collect();
    for piece in graph.edges.pieces() {
        for (from, to) in &piece.ends {
            let (one, other) = (find(&mut owners, *from), find(&mut owners, *to));
            owners[one.max(other) as usize] = one.min(other);
        }
        if job.is_cancelled() {
            return Err("cancelled".into());
        }
        job.step(1);
    }
    let mut sizes = vec![0u64; nodes];
    for node in 0..nodes as u32 {
        sizes[find(&mut owners, node) as usize] += 1;
    }
    // By size; a stable sort keeps the order of the smallest ids.
    let (mut roots, mut is_met) = (Vec::new(), vec![false; nodes]);
    for node in graph.nodes.in_order() {
        let root = find(&mut owners, node);
        if !std::mem::replace(&mut is_met[root as usize], true) {
            roots.push(root);
        }
    }
    roots.sort_by_key(|root| std::cmp::Reverse(sizes[*root as usize]));
    let mut numbers = vec![0i64; nodes];
    for (number, root) in roots.iter().enumerate() {
        numbers[*root as usize] = number as i64;
    }
    let number_of = |node: u32| numbers[find(&mut owners, node) as usize];
    let values = (0..nodes as u32).map(number_of).collect();
    Ok((Values::Counts(values), roots.iter().map(|root| sizes[*root as usize]).collect()))
}

/// To whom a node belongs; on the way each is given to the owner of its owner.
fn find(owners: &mut [u32], node: u32) -> u32 {
    let mut at = node;
    while owners[at as usize] != at {
        let owner = owners[at as usize];
        owners[at as usize] = owners[owner as usize];
        at = owner;
    }
    at
}
