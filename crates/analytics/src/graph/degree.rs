//! How many edges a node has, or their weight.

use crate::graph::answer::Values;
use crate::graph::bfs::Direction;
use crate::graph::gather::{Graph, no_memory};
use crate::graph::workers::Workers;

pub const NODE_BYTES: usize = 8;

pub fn run(graph: &Graph, direction: Direction, workers: Workers<'_>) -> Result<Values, String> {
    let (nodes, share) = (graph.nodes.len(), &workers.job.share);
    if !share.take(NODE_BYTES * nodes) {
        return Err(no_memory(share.bytes() + NODE_BYTES * nodes));
    }
    workers.job.begin("counting", 0);
    let mut sums = vec![0f64; nodes];
    workers.each(graph.edges.parts(), |part| {
        part.for_each(|from, to, weight| {
            if direction != Direction::In {
                sums[from as usize] += weight;
            }
            if direction != Direction::Out {
                sums[to as usize] += weight;
            }
        });
    })?;
    if graph.edges.is_weighted() {
        return Ok(Values::Numbers(sums));
    }
    Ok(Values::Counts(sums.into_iter().map(|sum| sum as i64).collect()))
}
