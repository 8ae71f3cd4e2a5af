//! How many edges a node has, or their weight.

use crate::graph::answer::Values;
use crate::graph::bfs::Direction;
use crate::graph::gather::{Graph, no_memory};
use crate::job::Job;

pub const NODE_BYTES: usize = 8;

pub fn run(graph: &Graph, direction: Direction, job: &Job) -> Result<Values, String> {
    let nodes = graph.nodes.len();
    if !job.share.take(NODE_BYTES * nodes) {
        return Err(no_memory(job.share.bytes() + NODE_BYTES * nodes));
    }
    let mut sums = vec![0f64; nodes];
    graph.edges.for_each_weighted(|from, to, weight| {
        if direction != Direction::In {
            sums[from as usize] += weight;
        }
        if direction != Direction::Out {
            sums[to as usize] += weight;
        }
    });
    if graph.edges.is_weighted() {
        return Ok(Values::Numbers(sums));
    }
    Ok(Values::Counts(sums.into_iter().map(|sum| sum as i64).collect()))
}
