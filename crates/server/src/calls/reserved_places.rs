//! Who may stay in a place beyond `maxclients`: `maxclients-reserved`.
//!
//! When clients that wait have taken all places, those have to come in who can help: a replica, for
//! which they may wait, and who administers the server. Nobody is known when it comes, so whoever
//! takes such a place may say who it is, and its first other call decides.

use kvasir_keyspace::error::Error;
use kvasir_keyspace::spec::Flags;
use kvasir_table::Entry;

use crate::calls::admit::Scene;
use crate::state::connection::Connection;

const TOO_MANY: Error = Error::fixed("ERR max number of clients reached");

/// What else a replica says before it has shown that it is one: by the ACL, nobody else may.
const OF_REPLICAS: [&str; 4] = ["ping", "replconf", "psync", "sync"];

/// Fails, and has the connection closed, unless its user is one of those for whom there are such
/// places.
#[cold]
pub fn check(scene: Scene<'_>, connection: &mut Connection, entry: &Entry) -> Result<(), Error> {
    if entry.spec.flags.contains(Flags::NO_AUTH) || OF_REPLICAS.contains(&&*entry.full_name) {
        return Ok(());
    }
    if connection.is_replicating() || is_administrator(scene, connection) {
        connection.is_on_trial = false;
        return Ok(());
    }
    scene.shared.workers[scene.worker].stats.rejected_connections.add(1);
    connection.is_closing = true;
    Err(TOO_MANY)
}

fn is_administrator(scene: Scene<'_>, connection: &mut Connection) -> bool {
    let Scene { shared, .. } = scene;
    if connection.access.refresh(&shared.acl, &shared.table).is_err() {
        return false;
    }
    // Who has given a password, or needs none: the latter is anybody, but on this machine.
    let (default, _) = shared.acl.default_user();
    let user = connection.access.user();
    let is_anybody = user.id == default.id && default.is_open();
    connection.access.may_go_on(&shared.acl)
        && (!is_anybody || connection.client.is_local)
        && user.may_call_all_of("admin", &shared.table)
}
