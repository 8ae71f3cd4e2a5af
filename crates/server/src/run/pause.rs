//! Calls that are put off, and connections that go on afterwards: after a pause, or when what they
//! wait for has come.

use kvasir_config::Config;
use kvasir_keyspace::error::Error;
use kvasir_keyspace::spec::Flags;
use kvasir_resp::args::Args;
use kvasir_table::Entry;

use crate::calls::routing;
use crate::run::scripting::busy;
use crate::run::worker::Worker;
use crate::state::connection::Connection;
use crate::state::core::Core;
use crate::state::shared::Shared;
use crate::store::Store;
use crate::store::aof::Aof;
use crate::store::saving::loading::LOADING;

/// How often those whose writes wait for the disk, or for a replica, look whether it has caught up.
const DISK_LOOK_MS: u64 = 5;

impl Worker {
    /// Has connections whose calls were put off go on, if the pause is over, or it is time to look
    /// whether what they wait for has come.
    #[inline]
    pub fn end_pause(&mut self) {
        if self.has_put_off() && self.is_time_to_go_on() {
            std::mem::take(&mut self.ranks_put_off)
                .into_iter()
                .for_each(|one| self.keep_ranks(one));
            for index in std::mem::take(&mut self.postponed) {
                if let Some(connection) = self.connections[index].as_deref_mut()
                    && connection.waiting.is_postponed
                {
                    connection.set_postponed(&self.shared.pause, false);
                    self.ready.push(index);
                }
            }
        }
    }

    fn is_time_to_go_on(&mut self) -> bool {
        let now_ms = self.core.env.now_ms;
        let looks_at_scripts = self.core.next_look_ms.take_if(|look_ms| *look_ms <= now_ms);
        looks_at_scripts.is_some() || self.pause_end_ms().is_none()
    }

    #[inline]
    fn has_put_off(&self) -> bool {
        !self.postponed.is_empty() || !self.ranks_put_off.is_empty()
    }

    /// When connections of this worker may go on, if calls of some are put off.
    pub fn pause_end_ms(&self) -> Option<u64> {
        if !self.has_put_off() {
            return None;
        }
        let now_ms = self.core.env.now_ms;
        if self.core.next_look_ms.is_some() {
            return self.core.next_look_ms;
        }
        let current = self.shared.pause.current(now_ms).map(|paused| paused.until_ms);
        let is_behind = is_behind(self.shared, &self.core.config);
        current.or(is_behind.then_some(now_ms + DISK_LOOK_MS))
    }

    /// Forgets that calls of a connection that closes were put off.
    pub fn forget_pause(&mut self, connection: &mut Connection) {
        connection.set_postponed(&self.shared.pause, false);
    }
}

/// Puts a call off if it may not run yet: for a script, in a pause, for the disk. Says whether.
#[inline]
pub fn puts_off(
    shared: &Shared,
    core: &mut Core,
    connection: &mut Connection,
    entry: &Entry,
    args: Args<'_>,
) -> bool {
    let now_ms = core.env.now_ms;
    if entry.spec.flags.contains(Flags::ALLOW_BUSY) && busy::has_to_wait(shared, connection, entry)
    {
        core.next_look_ms = Some(connection.postpone_a_little(&shared.pause, now_ms));
        return true;
    }
    if shared.pause.is_on() {
        connection.postpone(shared, entry, args, now_ms);
        if connection.waiting.is_postponed {
            return true;
        }
    }
    if core.env.logs && is_behind(shared, &core.config) {
        connection.postpone_for_disk(&shared.pause, entry);
    }
    connection.waiting.is_postponed
}

/// Whether writes are too fast for the disk, or for a replica.
#[inline]
pub fn is_behind(store: &Store, config: &Config) -> bool {
    let Store { replication, keyspace, .. } = store;
    Aof::is_behind(store, config.aof.buffer_limit)
        || replication.is_behind(&config.replication, &keyspace.log)
        || replication.tail.is_behind(&keyspace.log, &config.replication)
}

/// Puts a call off that comes when data has just begun to be loaded, whose slot is handed over
/// right now, or that writes to a key which MIGRATE has under way, unless it has failed otherwise.
#[cold]
pub fn holds(shared: &Shared, core: &mut Core, connection: &mut Connection, error: &Error) -> bool {
    let now_ms = core.env.now_ms;
    let moves = *error == routing::HELD || *error == routing::IN_FLIGHT;
    let holds = moves || *error == LOADING && shared.saving.loading.holds_calls(now_ms);
    if holds {
        core.next_look_ms = Some(connection.postpone_a_little(&shared.pause, now_ms));
    }
    holds
}
