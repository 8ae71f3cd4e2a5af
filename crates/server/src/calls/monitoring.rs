//! Monitors are told of a call.

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
