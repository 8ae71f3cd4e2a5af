//! Elements of a big set or hash, packed into pages by hash.

/// Elements of a big set or hash, packed into pages by hash.
#[derive(Clone, Default, Debug)]
pub struct PackedTable {}

impl PackedTable {
    pub fn new() -> PackedTable {
        PackedTable::default()
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
