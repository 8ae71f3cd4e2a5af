//! Triangles: three nodes of which each two are joined by an edge, whatever its direction.
//!
//! Each edge is kept once, at that of its ends which has fewer; so no node keeps more of them than
//! the root of twice their number, and each triangle is found once, from its lowest node.

use crate::graph::answer::Values;
use crate::graph::csr::{By, Csr};
use crate::graph::edges::Edges;
use crate::graph::gather::{Graph, no_memory};
use crate::graph::workers::{Workers, ranges};

/// Nodes whose triangles are counted at once.
const NODES_PER_PIECE: usize = 1024;

/// Bytes that an edge takes as a pair, in a row, and once more in order.
pub const EDGE_BYTES: usize = 16;
pub const NODE_BYTES: usize = 24;

/// In how many triangles each node is; and how many there are.
pub fn run(graph: &Graph, workers: Workers<'_>) -> Result<(Values, u64), String> {
    let (nodes, job) = (graph.nodes.len(), workers.job);
    let bytes = NODE_BYTES * nodes + EDGE_BYTES * graph.edges.len();
    if !job.share.take(bytes) {
        return Err(no_memory(job.share.bytes() + bytes));
    }
    let rows = upward_rows(graph, workers)?;
    job.begin("counting", nodes as u64);
    let (mut counts, mut marks, mut sum) = (vec![0i64; nodes], vec![u32::MAX; nodes], 0);
    workers.each(ranges(nodes, NODES_PER_PIECE), |piece| {
        job.step(piece.len() as u64);
        for low in piece {
            let row = rows.row(low);
            row.iter().for_each(|other| marks[*other as usize] = low as u32);
            for middle in row {
                for high in rows.row(*middle as usize) {
                    if marks[*high as usize] == low as u32 {
                        let all = [low, *middle as usize, *high as usize];
                        all.iter().for_each(|at| counts[*at] += 1);
                        sum += 1;
                    }
                }
            }
        }
    })?;
    Ok((Values::Counts(counts), sum))
}

/// Every edge once, without loops, from the end with fewer edges to the other one.
fn upward_rows(graph: &Graph, workers: Workers<'_>) -> Result<Csr, String> {
    let nodes = graph.nodes.len();
    let mut degrees = vec![0u32; nodes];
    workers.each(graph.edges.parts(), |part| {
        part.for_each(|from, to, _| {
            degrees[from as usize] += 1;
            degrees[to as usize] += 1;
        });
    })?;
    let height = |node: u32| (degrees[node as usize], node);
    let mut upward = Edges::new(false);
    workers.each(graph.edges.parts(), |part| {
        part.for_each(|from, to, _| {
            if from != to {
                let (low, high) = if height(from) < height(to) { (from, to) } else { (to, from) };
                upward.push(low, high, 1.0);
            }
        });
    })?;
    let doubled = Csr::new(nodes, &upward, By::Source, workers)?;
    let (mut starts, mut others) = (vec![0u32], Vec::with_capacity(doubled.others.len()));
    workers.each(ranges(nodes, NODES_PER_PIECE), |piece| {
        for node in piece {
            let mut row = doubled.row(node).to_vec();
            row.sort_unstable();
            row.dedup();
            others.append(&mut row);
            starts.push(others.len() as u32);
        }
    })?;
    Ok(Csr { starts, others, weights: Vec::new() })
}
