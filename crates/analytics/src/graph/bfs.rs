//! Distances from one node, in edges.

use crate::graph::answer::{ABSENT, Values};
use crate::graph::csr::{By, Csr};
use crate::graph::gather::{Graph, no_memory};
use crate::graph::workers::Workers;

/// Nodes whose edges are followed at once.
const NODES_PER_PIECE: usize = 1 << 12;

/// Along which edges.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Direction {
    Out,
    In,
    Both,
}

/// Bytes that a node takes: its distance, its place among those that are next.
pub const NODE_BYTES: usize = 12;

/// The distance of each node within `depth_max`; others are absent. And how many were reached.
pub fn run(
    graph: &Graph,
    root: u32,
    direction: Direction,
    depth_max: i64,
    workers: Workers<'_>,
) -> Result<(Values, u64), String> {
    let (nodes, edges, job) = (graph.nodes.len(), &graph.edges, workers.job);
    let copies = if direction == Direction::Both { 2 } else { 1 };
    let bytes = NODE_BYTES * nodes + copies * Csr::bytes(nodes, edges.len(), edges.is_weighted());
    if !job.share.take(bytes) {
        return Err(no_memory(job.share.bytes() + bytes));
    }
    let mut ways = Vec::new();
    if direction != Direction::In {
        ways.push(Csr::new(nodes, edges, By::Source, workers)?);
    }
    if direction != Direction::Out {
        ways.push(Csr::new(nodes, edges, By::Target, workers)?);
    }
    job.begin("searching", nodes as u64);
    let mut distances = vec![ABSENT; nodes];
    distances[root as usize] = 0;
    let (mut front, mut reached, mut distance) = (vec![root], 1, 0);
    while !front.is_empty() && distance < depth_max {
        distance += 1;
        let mut next = Vec::new();
        workers.each(front.chunks(NODES_PER_PIECE), |nodes| {
            let rows = nodes.iter().flat_map(|node| ways.iter().map(|way| way.row(*node as usize)));
            for other in rows.flatten() {
                if distances[*other as usize] == ABSENT {
                    distances[*other as usize] = distance;
                    next.push(*other);
                }
            }
        })?;
        reached += next.len() as u64;
        job.step(next.len() as u64);
        front = next;
    }
    Ok((Values::Counts(distances), reached))
}
