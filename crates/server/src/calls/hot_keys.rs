//! Calls whose keys are counted among those that are used most.

use kvasir_keyspace::place::DbIndex;
use kvasir_keyspace::spec::{Flags, Traits};

use crate::calls::admit::Scene;
use crate::calls::invocation::Invocation;
use crate::calls::planning::plan_keys;
use crate::state::core::Core;
use crate::state::shared::Shared;
use crate::stats::hot_keys::{Used, Watch};

/// Before a call: whether it is to be counted.
#[inline]
pub fn begin(shared: &Shared, core: &mut Core) -> Option<Watch> {
    if shared.hot_keys.is_on() { shared.hot_keys.begin(&mut core.hot_keys) } else { None }
}

/// After a call that is counted, of so many bytes with its reply.
#[cold]
pub fn end(scene: Scene<'_>, watch: Watch, db: DbIndex, call: &Invocation<'_>, bytes: usize) {
    let Scene { shared, worker, core } = scene;
    let Invocation { entry, args, planned } = *call;
    if entry.spec.traits.contains(Traits::LOOKS) {
        return;
    }
    let mut found = Vec::new();
    let keys = match planned {
        Some(keys) => keys,
        None => {
            // What names no keys has none.
            let _ = plan_keys(entry, args, db, &shared.keyspace, &mut found);
            &found
        }
    };
    if keys.is_empty() {
        return;
    }
    let writes = entry.spec.flags.contains(Flags::WRITE)
        || entry.spec.traits.contains(Traits::MAY_REPLICATE);
    let used = Used { keys, args, writes, bytes: bytes as u64 };
    shared.hot_keys.end(worker, watch, core.env.now_ms, used);
}
