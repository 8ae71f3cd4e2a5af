//! A big list as a sequence of listpacks.

/// A big list as a sequence of listpacks.
#[derive(Clone, Default, Debug)]
pub struct Quicklist {}

impl Quicklist {
    pub fn new() -> Quicklist {
        Quicklist::default()
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
