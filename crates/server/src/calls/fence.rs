//! What news of changes wait for, and messages of sessions (`run/fence.rs` tells of replies).
//!
//! Messages that a session publishes are not posted before what it has written has its place in the
//! log: until then nobody knows what they have to wait for.

use kvasir_keyspace::view::Tally;

use crate::state::core::Core;
use crate::state::shared::Shared;

/// What news of changes have to wait for that this worker is about to tell of.
#[inline]
pub fn of_news(core: &Core) -> u64 {
    let Core { env, tally: Tally { written_to, .. }, .. } = core;
    if env.fences { core.written_to.max(*written_to) } else { 0 }
}

/// Keeps the messages that a session causes, if they may have to wait for what it writes.
pub fn hold_messages(shared: &Shared, worker: usize, core: &Core) {
    if core.env.fences {
        shared.pubsub.hold(worker);
        shared.tracking.hold(worker);
    }
}

/// Posts the messages of a session whose changes are in the log.
pub fn post_messages(shared: &Shared, worker: usize, core: &Core) {
    let fence = core.tally.fence.max(core.tally.written_to);
    shared.pubsub.release(worker, fence);
    shared.tracking.release(worker, fence);
}
