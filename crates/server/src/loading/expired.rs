//! Keys whose time came while the server was away. Replicas that go on from its file have them
//! still, so they are loaded, and then deleted with the log open.

use std::sync::atomic::Ordering::Relaxed;

use kvasir_keyspace::expire::expire_slot;
use kvasir_keyspace::place::Place;
use kvasir_structures::gate::ExclusivePass;
use kvasir_structures::slot::SLOTS;

use crate::state::core::Core;
use crate::state::shared::Shared;

/// At the start it runs nothing yet.
const WORKER: usize = 0;
/// Of one slot, under its lock.
const BATCH: usize = 1024;

pub fn delete(shared: &'static Shared, alone: &ExclusivePass<'_>) {
    let (keyspace, mut core) = (&shared.keyspace, Core::new(shared, WORKER));
    for db in keyspace.indexes().filter(|db| keyspace.database(*db, alone).was_used()) {
        for slot in 0..SLOTS as u16 {
            let place = Place { db, slot };
            while expire_slot(keyspace, alone, place, &core.env, &mut core.tally, BATCH) {}
        }
    }
    shared.saving.loading.progress.keys_expired.fetch_add(core.tally.expired, Relaxed);
    shared.freeing.free(core.tally.garbage.drain(..));
}
