//! PageRank, as two definitions have it.
//!
//! Both begin with 1 for each node and add up, for each, what its predecessors hand on: their rank
//! divided by the number of edges that leave them, or by weight. A new rank is `1 - damping` and
//! `damping` times that sum.
//!
//! - A, the example of Spark: a node that receives nothing has no rank any more, and hands nothing
//!   on; one without edges that leave it has none at the beginning.
//! - B: every node keeps `1 - damping`.

use crate::graph::answer::Values;
use crate::graph::csr::{By, Csr};
use crate::graph::gather::{Graph, no_memory};
use crate::graph::workers::{Workers, pieces};

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Definition {
    A,
    B,
}

#[derive(Clone, Copy, Debug)]
pub struct PageRank {
    pub iterations: u32,
    pub damping: f64,
    pub definition: Definition,
}

/// Bytes that a node takes beside its row: rank, what it hands on now and next, what leaves it.
pub const NODE_BYTES: usize = 32;

/// Some nodes in a row: their ranks, and what they are to hand on.
struct Piece<'a> {
    first: usize,
    ranks: &'a mut [f64],
    next: &'a mut [f64],
}

impl PageRank {
    pub fn run(self, graph: Graph, workers: Workers<'_>) -> Result<(Graph, Values), String> {
        let nodes = graph.nodes.len();
        let bytes = Csr::bytes(nodes, graph.edges.len(), graph.edges.is_weighted());
        if !workers.job.share.take(bytes + NODE_BYTES * nodes) {
            return Err(no_memory(workers.job.share.bytes() + bytes + NODE_BYTES * nodes));
        }
        let mut leaving = vec![0f64; nodes];
        workers.each(graph.edges.parts(), |part| {
            part.for_each(|from, _, weight| leaving[from as usize] += weight);
        })?;
        let rows = Csr::new(nodes, &graph.edges, By::Target, workers)?;
        let begins = |leaving: &f64| self.definition == Definition::B || *leaving > 0.0;
        let mut ranks: Vec<f64> =
            leaving.iter().map(|leaving| if begins(leaving) { 1.0 } else { 0.0 }).collect();
        let hand_on = |(rank, leaving): (&f64, &f64)| handed_on(*rank, *leaving);
        let mut handed: Vec<f64> = ranks.iter().zip(&leaving).map(hand_on).collect();
        let mut next = vec![0f64; nodes];
        let lengths = pieces(&rows);
        workers.job.begin("iterating", self.iterations.into());
        for _ in 0..self.iterations {
            let (mut first, mut rest) = (0, (&mut ranks[..], &mut next[..]));
            let all = lengths.iter().map(|length| {
                let (ranks, others) = std::mem::take(&mut rest.0).split_at_mut(*length);
                let (next, more) = std::mem::take(&mut rest.1).split_at_mut(*length);
                rest = (others, more);
                first += length;
                Piece { first: first - length, ranks, next }
            });
            let all: Vec<_> = all.collect();
            workers.run(all.into_iter(), |piece| {
                self.compute(&rows, &handed, &leaving[piece.first..], piece);
            })?;
            std::mem::swap(&mut handed, &mut next);
            workers.job.step(1);
        }
        if self.definition == Definition::A {
            ranks.iter_mut().filter(|rank| **rank == 0.0).for_each(|rank| *rank = f64::NAN);
        }
        Ok((graph, Values::Numbers(ranks)))
    }

    /// New ranks of some nodes in a row, and what they hand on.
    fn compute(self, rows: &Csr, handed: &[f64], leaving: &[f64], piece: Piece<'_>) {
        let Piece { first, ranks, next } = piece;
        let keeps = self.definition == Definition::B;
        for (index, ((rank, next), leaving)) in ranks.iter_mut().zip(next).zip(leaving).enumerate()
        {
            let node = first + index;
            let row = rows.row(node);
            let sum: f64 = if rows.weights.is_empty() {
                row.iter().map(|other| handed[*other as usize]).sum()
            } else {
                let weights = &rows.weights[rows.starts[node] as usize..];
                row.iter()
                    .zip(weights)
                    .map(|(other, weight)| handed[*other as usize] * weight)
                    .sum()
            };
            *rank = match sum > 0.0 || keeps {
                true => (1.0 - self.damping) + self.damping * sum,
                false => 0.0,
            };
            *next = handed_on(*rank, *leaving);
        }
    }
}

fn handed_on(rank: f64, leaving: f64) -> f64 {
    if leaving > 0.0 { rank / leaving } else { 0.0 }
}
