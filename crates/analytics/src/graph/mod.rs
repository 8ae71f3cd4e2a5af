//! Graphs: adjacency gathered from keys, and what is computed of them.

pub mod answer;
pub mod bfs;
pub mod components;
pub mod csr;
pub mod degree;
pub mod edges;
pub mod estimate;
pub mod gather;
pub mod nodes;
pub mod page_rank;
pub mod source;
pub mod triangles;
pub mod workers;

#[cfg(test)]
mod tests;
