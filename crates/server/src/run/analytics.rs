//! Calls that wait for what the background computes, and ranks that are kept under a key.

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use kvasir_keyspace::error::Error;
use kvasir_keyspace::event::Class;
use kvasir_keyspace::execute::{KeyCall, execute_on_key};
use kvasir_keyspace::place::DbIndex;
use kvasir_keyspace::plan::KeyAt;
use kvasir_keyspace::waiting::Caller;
use kvasir_resp::args::ArgsBuf;
use kvasir_resp::reply::Reply;
use kvasir_structures::crc16;

use crate::analytics::ticket::Ticket;
use crate::calls::admission::check_write;
use crate::calls::evict::{OUT_OF_MEMORY, may_write};
use crate::calls::notifications;
use crate::calls::routing::{self, Found, Route, Wish};
use crate::run::pause::is_behind;
use crate::run::server::ServerCx;
use crate::run::worker::Worker;
use crate::state::connection::Replies;
use crate::state::core::Core;
use crate::state::waits::{Awaited, Waits};
use crate::workers::Served;
use crate::workers::ranks::{Kept, Ranks};

/// Who calls, for an answer that comes later.
pub fn caller(cx: &ServerCx<'_>) -> Caller {
    let connection = &cx.connection;
    let (client, index) = (connection.client.id, connection.id.index as usize);
    Caller { client, worker: cx.worker, connection: index }
}

/// Has the connection wait for who has the ticket.
pub fn wait(cx: &mut ServerCx<'_>, ticket: Arc<Ticket>) {
    let connection = &mut *cx.connection;
    connection.client.is_blocked.store(true, Relaxed);
    connection.client.set_job(ticket.job.clone());
    let is_muted = connection.output.replies != Replies::On;
    let awaited = Awaited::Background(ticket);
    let waits = Waits { awaited, is_muted, made: None, us: 0 };
    cx.core.deadlines.add(waits.place(connection));
    connection.client.has_deadline.store(waits.place(connection).is_some(), Relaxed);
    connection.waiting.waits = Some(Box::new(waits));
}

impl Worker {
    /// Keeps what was computed for one of this worker's clients, as if that had written it now: in
    /// a pause, or while the disk or a replica is behind, later.
    pub fn keep_ranks(&mut self, ranks: Ranks) {
        let (shared, now_ms) = (self.shared, self.core.env.now_ms);
        if shared.pauses(now_ms) || self.core.env.logs && is_behind(shared, &self.core.config) {
            return self.ranks_put_off.push(ranks);
        }
        let Ranks { caller, claim, may_keep, db, key, kept, mut reply, count, fence } = ranks;
        let Some(index) = self.index_of(caller.client).filter(|_| claim()) else { return };
        let before = std::mem::take(&mut self.core.tally.fence);
        match may_keep().and_then(|()| self.write_ranks(index, db, &key, kept)) {
            Ok(()) => reply.integer(count as i64),
            Err(error) => {
                reply = Reply::new(reply.protocol());
                reply.error_bytes(error.text());
            }
        }
        // It is this client that waits for the disk, and that WAIT tells of it.
        if let Some(connection) = self.connections[index].as_deref_mut() {
            connection.wait_for_disk(&mut self.core);
        }
        self.core.tally.fence = before;
        self.unblock(Served { caller, reply, fence, us: 0 });
        self.publish_tally();
        self.serve_left(caller.client);
        self.flush_touched();
    }

    fn write_ranks(
        &mut self,
        index: usize,
        db: DbIndex,
        key: &[u8],
        kept: Option<Kept>,
    ) -> Result<(), Error> {
        let (shared, worker) = (self.shared, self.index);
        let keyspace = &shared.keyspace;
        let pass = shared.gate.enter_unless(worker, || keyspace.busy.is_busy());
        let pass = pass.ok_or_else(|| keyspace.busy.error())?;
        self.core.see_listeners(shared);
        let Some(connection) = self.connections[index].as_deref() else { return Ok(()) };
        let (client, is_tls) = (connection.client.id, connection.wire.tls.is_some());
        let slot = crc16::slot_of(key);
        let route = match &shared.cluster {
            Some(node) => {
                Some((node, routing::route_slot(shared, node, slot, Wish::late(is_tls))?))
            }
            None => None,
        };
        shared.saving.loading.check()?;
        check_write(shared, &self.core.config, self.core.env.now_ms)?;
        if !may_write(shared, worker, &mut self.core, &pass) {
            return Err(OUT_OF_MEMORY);
        }
        let Core { env, tally, .. } = &mut self.core;
        let (call, record): (ArgsBuf, _) = match kept {
            Some(Kept { record, dump }) => {
                ([b"RESTORE", key, b"0", &dump, b"REPLACE"].into_iter().collect(), Some(record))
            }
            None => ([&b"DEL"[..], key].into_iter().collect(), None),
        };
        let args = call.as_args();
        let at = KeyAt::new(args, 1, db);
        let logs = env.logs;
        let call = KeyCall { args, key: &at, is_read_only: false };
        let written = execute_on_key(keyspace, &pass, call, env, tally, |view| {
            if let Some((node, Route::Moving(moving))) = route {
                let present = usize::from(view.exists(0));
                let found = Found { present, missing: 1 - present };
                routing::judge_moving(shared, node, moving, found, is_tls)?;
            }
            let was_there = view.delete(0);
            let is_kept = record.is_some();
            if let Some(record) = record {
                view.insert(0, record);
                view.changed(0, Class::GENERIC, "restore");
            } else if was_there {
                view.changed(0, Class::GENERIC, "del");
            }
            if is_kept || was_there {
                view.tally.changes += 1;
                if logs {
                    view.tally.entry.push(db, args.iter());
                }
            }
            Ok(())
        });
        written.flatten()?;
        notifications::tell(shared, worker, &mut self.core, client);
        Ok(())
    }
}
