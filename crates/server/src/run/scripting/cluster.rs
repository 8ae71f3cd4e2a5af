//! Calls of scripts in a cluster: their keys, too, must be this node's.

use kvasir_keyspace::error::Error;
use kvasir_resp::args::Args;
use kvasir_table::Entry;

use crate::calls::routing::{self, Wish};
use crate::run::scripting::host::Running;

const CROSS_SLOT: Error =
    Error::fixed("ERR Script attempted to access keys that do not hash to the same slot");
const NOT_LOCAL: Error =
    Error::fixed("ERR Script attempted to access a non local key in a cluster node");
const DOWN: Error =
    Error::fixed("ERR Script attempted to execute a command while the cluster is down");
const DOWN_WRITES: Error = Error::fixed(
    "ERR Script attempted to execute a write command while the cluster is down and readonly",
);

/// Fails if a call that a script makes has keys that are not to be used here.
pub fn check_call(running: &mut Running, entry: &Entry, args: Args<'_>) -> Result<(), Error> {
    let session = &running.session;
    if session.shared().cluster.is_none() || !session.has_client() {
        return Ok(());
    }
    let slots = routing::slots_of(entry, args);
    let Some(slot) = routing::one_slot(slots.into_iter()).map_err(|_| CROSS_SLOT)? else {
        return Ok(());
    };
    let wish = Wish::of(session.shared(), &session.connection, entry, args);
    session.check_routes(wish, std::iter::once((entry, args))).map_err(|error| {
        let is_down = error.text().starts_with(b"CLUSTERDOWN The cluster");
        match error.text().ends_with(b"read commands") {
            true => DOWN_WRITES,
            false if is_down => DOWN,
            false => NOT_LOCAL,
        }
    })?;
    let first = *running.slot.get_or_insert(slot);
    if first != slot && !running.may_cross_slots { Err(CROSS_SLOT) } else { Ok(()) }
}
