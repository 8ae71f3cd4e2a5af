//! Members in the order of their scores, with ranks.

/// Members in the order of their scores, with ranks.
#[derive(Clone, Default, Debug)]
pub struct OrderedSet {}

impl OrderedSet {
    pub fn new() -> OrderedSet {
        OrderedSet::default()
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
