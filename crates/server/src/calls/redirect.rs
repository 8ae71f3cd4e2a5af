//! CLIENT CAPA REDIRECT: outside of clusters a replica sends clients that can follow to its
//! primary, with what they write and, unless they have said READONLY, with what they read.

use std::sync::atomic::Ordering::Relaxed;

use kvasir_keyspace::error::Error;
use kvasir_keyspace::spec::Flags;
use kvasir_table::Entry;

use crate::state::connection::Connection;
use crate::state::shared::Shared;

/// Fails if these calls are the primary's.
#[inline]
pub fn check<'e>(
    shared: &Shared,
    connection: &Connection,
    entries: impl IntoIterator<Item = &'e Entry>,
) -> Result<(), Error> {
    if !shared.replication.upstream.is_replica() || !connection.client.can_redirect.load(Relaxed) {
        return Ok(());
    }
    let all = Flags::WRITE.union(Flags::READONLY);
    let wanted = if connection.routing.reads_replicas { Flags::WRITE } else { all };
    let are_its = entries.into_iter().any(|entry| entry.spec.flags.intersects(wanted));
    match shared.replication.upstream.primary().filter(|_| are_its) {
        Some(primary) => Err(Error::new(format!("REDIRECT {}:{}", primary.host, primary.port))),
        None => Ok(()),
    }
}
