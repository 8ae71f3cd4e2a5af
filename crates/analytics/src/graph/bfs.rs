//! Distances from one node, in edges.

use crate::graph::answer::{ABSENT, Values};
use crate::graph::csr::{By, Csr};
use crate::graph::gather::{Graph, no_memory};
use crate::job::Job;

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
    (root, direction, depth_max): (u32, Direction, i64),
    job: &Job,
) -> Result<(Values, u64), String> {
    let (nodes, edges) = (graph.nodes.len(), &graph.edges);
    let copies = if direction == Direction::Both { 2 } else { 1 };
    let bytes = NODE_BYTES * nodes + copies * Csr::bytes(nodes, edges.len(), edges.is_weighted());
    if !job.share.take(bytes) {
        return Err(no_memory(job.share.bytes() + bytes));
    }
    let mut ways = Vec::new();
    if direction != Direction::In {
        ways.push(Csr::new(nodes, edges, By::Source));
    }
    if direction != Direction::Out {
        ways.push(Csr::new(nodes, edges, By::Target));
    }
    job.begin("searching", nodes as u64);
    let mut distances = vec![ABSENT; nodes];
    distances[root as usize] = 0;
    let (mut front, mut reached, mut distance) = (vec![root], 1, 0);
    while !front.is_empty() && distance < depth_max {
        if job.is_cancelled() {
            return Err("cancelled".into());
        }
        distance += 1;
        let mut next = Vec::new();
        for node in &front {
            for other in ways.iter().flat_map(|way| way.row(*node as usize)) {
                if distances[*other as usize] == ABSENT {
                    distances[*other as usize] = distance;
                    next.push(*other);
                }
            }
        }
        reached += next.len() as u64;
        job.step(next.len() as u64);
        front = next;
    }
    Ok((Values::Counts(distances), reached))
}
