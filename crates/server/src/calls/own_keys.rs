//! Keys of a writable replica to which its own clients have given an expiry: who notes them, and
//! where worker 0 is that looks at them (`run/own_keys.rs`).

use kvasir_keyspace::place::DbIndex;
use kvasir_keyspace::plan::KeyAt;
use kvasir_resp::args::Args;

use crate::state::core::Core;
use crate::state::shared::Shared;

/// Notes the keys of a call that may have given some of them an expiry.
#[cold]
pub fn note(shared: &Shared, core: &Core, keys: &[KeyAt], args: Args<'_>) {
    if core.tally.noted_expiry && shared.replication.upstream.is_replica() {
        keys.iter()
            .for_each(|key| shared.replication.own_keys.add(key.db, &args[key.arg as usize]));
    }
}

/// Where it is.
#[derive(Default)]
pub struct Walk {
    pub next_ms: u64,
    pub last: Option<(DbIndex, Vec<u8>)>,
}
