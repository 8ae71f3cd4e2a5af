//! Components: which nodes are connected, whatever the direction of edges.

use crate::graph::answer::Values;
use crate::graph::gather::{Graph, no_memory};
use crate::graph::workers::{Workers, ranges};

/// Bytes that a node takes at most: whom it belongs to, how many belong to it, its place in the
/// order, whether it was met there, its place among the roots, its number, its component's size.
pub const NODE_BYTES: usize = 4 + 8 + 4 + 1 + 4 + 8 + 8;
/// Nodes that are looked at at once.
const NODES_PER_PIECE: usize = 1 << 16;

/// For each node the number of its component, from 0, the largest, on; those of one size in the
/// order of their smallest ids. And how large each is.
pub fn run(graph: &Graph, workers: Workers<'_>) -> Result<(Values, Vec<u64>), String> {
    let (nodes, job) = (graph.nodes.len(), workers.job);
    if !job.share.take(NODE_BYTES * nodes) {
        return Err(no_memory(job.share.bytes() + NODE_BYTES * nodes));
    }
    job.begin("connecting", graph.edges.part_count() as u64);
    let mut owners: Vec<u32> = (0..nodes as u32).collect();
    workers.each(graph.edges.parts(), |part| {
        part.for_each(|from, to, _| {
            let (one, other) = (find(&mut owners, from), find(&mut owners, to));
            owners[one.max(other) as usize] = one.min(other);
        });
        job.step(1);
    })?;
    let mut sizes = vec![0u64; nodes];
    workers.each(ranges(nodes, NODES_PER_PIECE), |piece| {
        piece.for_each(|node| sizes[find(&mut owners, node as u32) as usize] += 1);
    })?;
    let roots = roots(graph, &mut owners, &sizes, workers)?;
    let mut numbers = vec![0i64; nodes];
    for (number, root) in roots.iter().enumerate() {
        numbers[*root as usize] = number as i64;
    }
    workers.each(ranges(nodes, NODES_PER_PIECE), |piece| {
        piece.for_each(|node| numbers[node] = numbers[find(&mut owners, node as u32) as usize]);
    })?;
    Ok((Values::Counts(numbers), roots.iter().map(|root| sizes[*root as usize]).collect()))
}

/// To whom all nodes belong, by size; those of one size in the order of their smallest ids.
fn roots(
    graph: &Graph,
    owners: &mut [u32],
    sizes: &[u64],
    workers: Workers<'_>,
) -> Result<Vec<u32>, String> {
    let (mut order, mut roots, mut is_met) = (Vec::new(), Vec::new(), vec![false; owners.len()]);
    workers.each([()], |()| order = graph.nodes.in_order())?;
    workers.each(order.chunks(NODES_PER_PIECE), |nodes| {
        for node in nodes {
            let root = find(owners, *node);
            if !std::mem::replace(&mut is_met[root as usize], true) {
                roots.push(root);
            }
        }
    })?;
    // A stable sort keeps the order of the smallest ids.
    roots.sort_by_key(|root| std::cmp::Reverse(sizes[*root as usize]));
    Ok(roots)
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
