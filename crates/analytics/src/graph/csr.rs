//! Edges in order of one of their ends: compressed sparse rows.

use crate::graph::edges::Edges;
use crate::graph::workers::Workers;

/// Nodes whose rows are placed at once.
const NODES_PER_PIECE: usize = 1 << 16;

/// Which end of an edge a row belongs to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum By {
    /// Rows are what a node leads to.
    Source,
    /// Rows are what leads to a node.
    Target,
}

/// For each node, the nodes at the other ends of its edges.
pub struct Csr {
    /// Where each row begins; and the end of the last.
    pub starts: Vec<u32>,
    pub others: Vec<u32>,
    /// One for each, or none at all.
    pub weights: Vec<f64>,
}

impl Csr {
    /// Takes 4 bytes an edge and a node, and 8 an edge with weights.
    pub fn bytes(nodes: usize, edges: usize, is_weighted: bool) -> usize {
        4 * (nodes + 1) + edges * if is_weighted { 12 } else { 4 }
    }

    pub fn new(nodes: usize, edges: &Edges, by: By, workers: Workers<'_>) -> Result<Csr, String> {
        let mut starts = vec![0u32; nodes + 1];
        let row_of = |from: u32, to: u32| if by == By::Source { (from, to) } else { (to, from) };
        workers.each(edges.parts(), |part| {
            part.for_each(|from, to, _| starts[row_of(from, to).0 as usize] += 1);
        })?;
        let mut sum = 0;
        workers.each(starts.chunks_mut(NODES_PER_PIECE), |starts| {
            for start in starts {
                sum += *start;
                *start = sum;
            }
        })?;
        let mut others = vec![0u32; edges.len()];
        let mut weights = vec![0f64; if edges.is_weighted() { edges.len() } else { 0 }];
        // From each row's end to its start, which then is where it belongs.
        workers.each(edges.parts(), |part| {
            part.for_each(|from, to, weight| {
                let (row, other) = row_of(from, to);
                let at = &mut starts[row as usize];
                *at -= 1;
                others[*at as usize] = other;
                if let Some(place) = weights.get_mut(*at as usize) {
                    *place = weight;
                }
            });
        })?;
        Ok(Csr { starts, others, weights })
    }

    pub fn row(&self, node: usize) -> &[u32] {
        &self.others[self.starts[node] as usize..self.starts[node + 1] as usize]
    }

    pub fn nodes(&self) -> usize {
        self.starts.len() - 1
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::graph::tests::job;
    use crate::turns::Turns;

    #[test]
    fn rows_have_the_other_ends() {
        let mut edges = Edges::new(true);
        for (from, to, weight) in [(0, 2, 0.5), (2, 0, 1.5), (0, 1, 2.5), (1, 1, 3.5)] {
            edges.push(from, to, weight);
        }
        let (job, turns) = (job(1 << 20), Turns::default());
        let workers = Workers { job: &job, turns: &turns, threads: 1 };
        let out = Csr::new(3, &edges, By::Source, workers).unwrap();
        let rows: Vec<Vec<u32>> = (0..3).map(|node| out.row(node).to_vec()).collect();
        assert_eq!(rows, [vec![1, 2], vec![1], vec![0]]);
        assert_eq!(out.weights, [2.5, 0.5, 3.5, 1.5]);
        let into = Csr::new(3, &edges, By::Target, workers).unwrap();
        assert_eq!([into.row(0), into.row(1), into.row(2)], [&[2][..], &[1, 0], &[0]]);
    }
}
