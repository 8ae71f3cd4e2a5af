//! Who has keys in a cache is told of what a call has changed.

use kvasir_keyspace::spec::Traits;
use kvasir_pubsub::post::Origin;
use kvasir_table::Entry;

use crate::calls::invocation::Invocation;
use crate::calls::{fence, notifications};
use crate::state::connection::Connection;
use crate::state::core::Core;
use crate::state::shared::Shared;
use crate::tracking::Scene;

/// Tells of what a call has changed, while somebody tracks.
#[cold]
pub fn tell(
    shared: &Shared,
    worker: usize,
    core: &mut Core,
    connection: &Connection,
    call: &Invocation<'_>,
    is_ok: bool,
) {
    let has_changed = !core.tally.events.is_empty();
    notifications::tell(shared, worker, core, connection.client.id);
    if has_changed {
        // A read that found its key expired has invalidated what it was listed for.
        connection.remember_keys(
            &shared.tracking,
            Scene::of(&shared.clients, worker, &core.config),
            call.entry,
            call.args,
        );
    }
    if is_ok && flushes(call.entry) {
        let origin = Origin { worker, fence: fence::of_news(core) };
        shared.tracking.flush(&shared.clients, origin);
    }
}

/// Whether a call, if it succeeds, changes every key of a database.
pub fn flushes(entry: &Entry) -> bool {
    entry.spec.traits.contains(Traits::EMPTIES)
}
