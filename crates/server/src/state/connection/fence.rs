//! How far the log must be on disk before a connection is sent anything more.

use kvasir_config::aof::Fsync;
use kvasir_config::replication::Quorum;

use crate::state::connection::Connection;
use crate::state::core::Core;
use crate::store::Store;

impl Connection {
    /// Has what the call at hand replied wait for what it wrote or saw.
    #[inline]
    pub fn wait_for_disk(&mut self, core: &mut Core) {
        let Core { tally, written_to, .. } = core;
        self.durability.fence = self.durability.fence.max(std::mem::take(&mut tally.fence));
        let written = std::mem::take(&mut tally.written_to);
        self.durability.written_to = self.durability.written_to.max(written);
        *written_to = written.max(*written_to);
    }

    /// Has what it was told wait for that offset.
    #[inline]
    pub fn wait_for(&mut self, fence: u64) {
        self.durability.fence = self.durability.fence.max(fence);
    }

    /// Whether this is what CLIENT DURABILITY has asked for.
    #[inline]
    pub fn wants(&self, wish: Fsync) -> bool {
        self.durability.wish == Some(wish)
    }

    /// Has it wish for this, or for nothing of its own.
    pub fn set_durability(&mut self, shared: &Store, wish: Option<Fsync>, quorum: Quorum) {
        let wish = wish.filter(|wish| *wish < Fsync::No);
        let own = &mut self.durability;
        shared.aof.demand.wishes.count(own.wish.is_some(), wish.is_some());
        shared.replication.wishes.count(own.quorum.replicas > 0, quorum.replicas > 0);
        (own.wish, own.quorum) = (wish, quorum);
    }
}
