//! Monitors are told of a call.

use kvasir_keyspace::spec::Flags;
use kvasir_resp::args::Args;
use kvasir_table::Entry;

use crate::clients::monitors::By;
use crate::state::connection::Connection;
use crate::state::shared::Shared;

/// Tells monitors of a call of a client.
#[inline]
pub fn feed(
    shared: &Shared,
    worker: usize,
    connection: &Connection,
    entry: &Entry,
    args: Args<'_>,
) {
    if shared.monitors.is_on() {
        let by = By::Client(&connection.client);
        shared.monitors.feed(worker, by, connection.db, entry, args);
    }
}

/// Whether a call runs a script, of which monitors are told before they are told of its calls.
pub fn runs_script(entry: &Entry) -> bool {
    entry.spec.flags.contains(Flags::SKIP_MONITOR)
}
