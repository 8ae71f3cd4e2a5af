//! Whether a call may run: what Redis checks before a command runs, in its order.
//!
//! Each concern is a function of its own file and one line here: number of arguments, commands
//! that the configuration forbids, what the client's user may do, subscriptions, a busy script.
//! Memory comes behind them (`evict`).

use kvasir_config::Config;
use kvasir_keyspace::error::Error;
use kvasir_keyspace::spec::{Flags, Traits};
use kvasir_table::Entry;

use crate::calls::admit::{Scene, admit};
use crate::calls::invocation::Invocation;
use crate::calls::redirect;
use crate::calls::reserved_places;
use crate::calls::routing::{self, Route};
use crate::scripts::writes::may_write;
use crate::state::connection::{Connection, messages};
use crate::state::shared::Shared;
use crate::store::replication::upstream::Stage;
use crate::store::saving::loading::LOADING;

const READ_ONLY: Error = Error::fixed("READONLY You can't write against a read only replica.");
const STALE: Error = Error::fixed(
    "MASTERDOWN Link with MASTER is down and replica-serve-stale-data is set to 'no'.",
);
const NO_REPLICAS: Error = Error::fixed("NOREPLICAS Not enough good replicas to write.");

/// Fails with the error to reply if the call may not run.
#[inline]
pub fn check(
    scene: Scene<'_>,
    connection: &mut Connection,
    call: &Invocation<'_>,
) -> Result<Route, Error> {
    let Invocation { entry, args, .. } = *call;
    // A container is only called without a word, which its arity tells. What counts as a command
    // has words of its own, which its parser has looked at.
    if !entry.spec.accepts_count(args.len()) && !connection.wire.parser.is_memcached() {
        return Err(Error::wrong_arity(&entry.full_name));
    }
    if connection.is_on_trial {
        reserved_places::check(scene, connection, entry)?;
    }
    if entry.spec.flags.contains(Flags::PROTECTED) {
        check_protected(&scene.core.config, connection.client.is_local, entry)?;
    }
    admit(scene, connection, entry, args)?;
    let route = match &scene.shared.cluster {
        None => {
            redirect::check(scene.shared, connection, [entry])?;
            Route::Here
        }
        Some(node) => routing::route(scene.shared, node, connection, call)?,
    };
    messages::check_mode(connection, entry)?;
    if (connection.listening.is_monitor || connection.is_replicating()) && touches_data(entry) {
        return Err(Error::fixed("ERR Replica can't interact with the keyspace"));
    }
    if entry.spec.flags.contains(Flags::WRITE) {
        check_write(scene.shared, &scene.core.config, scene.core.env.now_ms)?;
    } else if entry.spec.traits.contains(Traits::TELLS_HEALTH) {
        check_disk(scene.shared)?;
    }
    if !entry.spec.flags.contains(Flags::STALE) {
        check_stale(scene.shared, &scene.core.config)?;
    }
    let saving = &scene.shared.saving;
    if !entry.spec.flags.contains(Flags::LOADING) {
        saving.loading.check()?;
    }
    if entry.spec.flags.contains(Flags::NO_ASYNC_LOADING) && saving.loading.is_aside() {
        return Err(LOADING);
    }
    let busy = &scene.shared.keyspace.busy;
    if busy.is_busy() && !entry.spec.flags.contains(Flags::ALLOW_BUSY) {
        return Err(busy.error());
    }
    Ok(route)
}

/// Fails if nothing may be written, as far as the disk and replicas are concerned.
#[inline]
pub fn check_write(shared: &Shared, config: &Config, now_ms: u64) -> Result<(), Error> {
    check_disk(shared)?;
    check_replicas(shared, config, now_ms)
}

/// Fails if the disk takes nothing, and clients are to know.
#[inline]
fn check_disk(shared: &Shared) -> Result<(), Error> {
    shared.saving.check_write(shared)?;
    shared.aof.check_write()
}

/// Fails if no client may write: to a replica, or while fewer replicas follow than are wanted.
#[inline]
pub fn check_replicas(shared: &Shared, config: &Config, now_ms: u64) -> Result<(), Error> {
    if shared.replication.upstream.is_replica() && config.replication.read_only {
        return Err(READ_ONLY);
    }
    let lacks_them = shared.replication.lacks_replicas(&config.replication, now_ms);
    if lacks_them { Err(NO_REPLICAS) } else { Ok(()) }
}

/// Fails if what this replica has may be old, and it is not to show that.
#[inline]
pub fn check_stale(shared: &Shared, config: &Config) -> Result<(), Error> {
    let upstream = &shared.replication.upstream;
    let shows_it = !upstream.is_replica()
        || config.replication.serves_stale_data
        || upstream.stage() == Stage::Online;
    if shows_it { Ok(()) } else { Err(STALE) }
}

/// What a client may not do that monitors: as in Redis it counts as a replica.
fn touches_data(entry: &Entry) -> bool {
    entry.spec.flags.intersects(Flags::READONLY.union(Flags::WRITE)) || may_write(entry)
}

/// What `enable-debug-command` and `enable-module-command` say.
#[cold]
fn check_protected(config: &Config, is_local: bool, entry: &Entry) -> Result<(), Error> {
    let (command, option, who) = match entry.full_name.split('|').next() {
        Some("module") => ("MODULE", "enable-module-command", config.enable_module_command),
        _ => ("DEBUG", "enable-debug-command", config.enable_debug_command),
    };
    if who.includes(is_local) {
        return Ok(());
    }
    Err(Error::new(format!(
        "ERR {command} command not allowed. If the {option} option is set to \"local\", you can run \
         it from a local connection, otherwise you need to set this option in the configuration \
         file, and then restart the server."
    )))
}
