//! What a connection has subscribed to.

use std::collections::HashSet;
use std::hash::BuildHasherDefault;
use std::sync::Arc;

use crate::{Kind, NameHasher};

/// What a connection has subscribed to; at least something.
#[derive(Default)]
pub struct Subscriptions(pub [HashSet<Arc<[u8]>, BuildHasherDefault<NameHasher>>; Kind::ALL.len()]);

impl Subscriptions {
    pub fn has(&self, kind: Kind, name: &[u8]) -> bool {
        self.0[kind as usize].contains(name)
    }

    pub fn count(&self, kind: Kind) -> usize {
        self.0[kind as usize].len()
    }

    /// Names of one kind, in any order.
    pub fn names(&self, kind: Kind) -> impl Iterator<Item = &Arc<[u8]>> {
        self.0[kind as usize].iter()
    }

    pub fn is_empty(&self) -> bool {
        self.0.iter().all(HashSet::is_empty)
    }
}
