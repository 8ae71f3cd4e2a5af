//! Entries of a stream in the order of their ids, with consumer groups.

/// Entries of a stream in the order of their ids, with consumer groups.
#[derive(Clone, Default, Debug)]
pub struct Stream {}

impl Stream {
    pub fn new() -> Stream {
        Stream::default()
    }

    /// Allocations behind it, about: what freeing it costs.
    pub fn part_count(&self) -> usize {
        0
    }

    /// Bytes of everything behind it.
    pub fn allocated_bytes(&self) -> usize {
        0
    }
}
