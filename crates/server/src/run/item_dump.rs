//! What items there are: `stats cachedump`, some keys for people who look, and `lru_crawler
//! metadump`, all of them for tools.
//!
//! The second goes out piece by piece: the next one is made when the last one is sent, between
//! turns, so that neither memory nor other clients wait for a slow reader. A key that is there from
//! begin to end is told once, since slots are gone through in order and keys don't change theirs.

use std::fmt::Write;
use std::time::Duration;

use kvasir_keyspace::error::Error;
use kvasir_keyspace::item::Item;
use kvasir_keyspace::place::DbIndex;
use kvasir_keyspace::value::{Record, Text};
use kvasir_keyspace::view::Env;
use kvasir_memcached::item::say;
use kvasir_resp::reply::Reply;
use kvasir_structures::gate::Pass;

use crate::run::worker::{BUSY_RETRY, Worker};
use crate::state::connection::{Connection, Replies};
use crate::state::core::Core;
use crate::state::shared::Shared;
use crate::state::waits::{Awaited, Dump, Waits};

/// No answer to `stats cachedump` is longer, as in memcached.
const BYTES_MAX: usize = 2 << 20;
/// A piece of `lru_crawler metadump` ends with the slot in which it gets so long, ...
const PIECE_BYTES: usize = 64 << 10;
/// ...or with the one in which so many keys were looked at.
const PIECE_KEYS: usize = 4096;

/// Lists so many strings of database 0; 0: as many as go into one answer.
#[cold]
pub fn write(
    shared: &Shared,
    core: &Core,
    pass: Option<&Pass<'static>>,
    connection: &mut Connection,
    limit: u32,
) -> Result<(), Error> {
    if !core.config.memcached.dump {
        say(&mut connection.reply, "CLIENT_ERROR stats cachedump not allowed", false);
        return Ok(());
    }
    let keyspace = &shared.keyspace;
    let pass = pass.ok_or_else(|| keyspace.busy.error())?;
    let database = keyspace.database(DbIndex(0), pass);
    let slots = if database.was_used() { &database.slots()[..] } else { &[] };
    let (mut lines, mut left) = (Vec::new(), if limit == 0 { u32::MAX } else { limit });
    for (slot, number) in slots.iter().zip(0..) {
        if left == 0 || lines.len() >= BYTES_MAX {
            break;
        }
        if slot.is_empty() || keyspace.hidden.has(number) {
            continue;
        }
        let guard = slot.lock_unless(pass, || keyspace.busy.is_busy());
        guard.ok_or_else(|| keyspace.busy.error())?.for_each(|record| {
            let is_over = record.expiry_ms().is_some_and(|ms| core.env.has_passed(ms));
            if left > 0 && lines.len() < BYTES_MAX && !is_over && put(&mut lines, record) {
                left -= 1;
            }
        });
    }
    wait_for_all(shared, core, connection);
    connection.reply.raw(&lines);
    connection.reply.raw(b"END\r\n");
    Ok(())
}

/// What was read anywhere may be what somebody else has just written: as with KEYS, it is told when
/// that is as safe as whoever wrote it was promised.
fn wait_for_all(shared: &Shared, core: &Core, connection: &mut Connection) {
    if core.env.fences {
        connection.wait_for(shared.keyspace.log.end());
    }
}

/// Whether it is a string, and so an item.
fn put(lines: &mut Vec<u8>, record: Record<'_>) -> bool {
    let Ok(text) = Text::of(record) else { return false };
    lines.extend_from_slice(b"ITEM ");
    lines.extend_from_slice(record.key());
    let mut rest = String::new();
    let expiry_s = record.expiry_ms().unwrap_or(0) / 1000;
    let _ = write!(rest, " [{} b; {expiry_s} s]\r\n", text.len());
    lines.extend_from_slice(rest.as_bytes());
    true
}

/// Begins to list all strings of database 0, if they are asked for.
#[cold]
pub fn begin(core: &mut Core, connection: &mut Connection, has_first: bool) {
    if !core.config.memcached.dump {
        return say(&mut connection.reply, "ERROR metadump not allowed", false);
    }
    if !has_first {
        return say(&mut connection.reply, "END", false);
    }
    let is_muted = connection.output.replies != Replies::On;
    let awaited = Awaited::Reader(Dump::default());
    connection.waiting.waits = Some(Box::new(Waits { awaited, is_muted, made: None, us: 0 }));
    core.dumps.push(connection.id.index as usize);
}

impl Worker {
    /// Gives those who list items the next piece, if they have been sent the last one.
    pub fn go_on_dumping(&mut self) {
        if self.core.dumps.is_empty() {
            return;
        }
        let shared = self.shared;
        let pass = shared.gate.enter_unless(self.index, || shared.keyspace.busy.is_busy());
        let Some(pass) = pass else { return };
        self.core.see_listeners(shared);
        let mut dumps = std::mem::take(&mut self.core.dumps);
        dumps.retain(|index| self.dump_piece(*index, &pass));
        self.core.dumps = dumps;
        drop(pass);
        self.flush_touched();
    }

    /// Whether there is more to come.
    fn dump_piece(&mut self, index: usize, pass: &Pass<'static>) -> bool {
        let Some(connection) = self.connections[index].as_deref_mut() else { return false };
        let is_due = connection.has_sent_all();
        let waits = connection.waiting.waits.as_deref_mut();
        let Some(Awaited::Reader(dump)) = waits.map(|waits| &mut waits.awaited) else {
            return false;
        };
        if !is_due {
            return true;
        }
        let (mut lines, env) = (Vec::new(), &self.core.env);
        let has_more = write_piece(dump, self.shared, env, pass, &mut lines);
        wait_for_all(self.shared, &self.core, connection);
        connection.reply.raw(&lines);
        self.touched.push(index);
        if !has_more {
            connection.reply.raw(b"END\r\n");
            connection.is_closing |= connection.wire.has_ended && connection.wire.input.is_empty();
            let mut nothing = Reply::new(connection.protocol());
            self.give_answer(index, &mut nothing);
        }
        has_more
    }

    /// When to go on, if that is not when something is sent.
    pub fn dump_timeout(&self) -> Option<Duration> {
        let of = |index: &usize| self.connections[*index].as_deref();
        let is_due = self.core.dumps.iter().filter_map(of).any(Connection::has_sent_all);
        let is_busy = self.shared.keyspace.busy.is_busy();
        is_due.then_some(if is_busy { BUSY_RETRY } else { Duration::ZERO })
    }
}

/// Lists some slots. Whether there are more.
fn write_piece(
    dump: &mut Dump,
    shared: &Shared,
    env: &Env,
    pass: &Pass<'static>,
    lines: &mut Vec<u8>,
) -> bool {
    let keyspace = &shared.keyspace;
    let database = keyspace.database(DbIndex(0), pass);
    let slots = if database.was_used() { &database.slots()[..] } else { &[] };
    let mut seen = 0;
    while lines.len() < PIECE_BYTES && seen < PIECE_KEYS {
        let Some(slot) = slots.get(dump.next_slot) else { return false };
        if !slot.is_empty() && !keyspace.hidden.has(dump.next_slot as u16) {
            // One that is held by a busy script is tried again.
            let guard = slot.lock_unless(pass, || keyspace.busy.is_busy());
            let Some(guard) = guard else { return true };
            guard.for_each(|record| {
                seen += 1;
                if !record.expiry_ms().is_some_and(|ms| env.has_passed(ms)) {
                    describe(lines, record, env);
                }
            });
        }
        dump.next_slot += 1;
    }
    dump.next_slot < slots.len()
}

/// The line of an item, if it is a string. An id is told only if somebody has asked for it.
fn describe(lines: &mut Vec<u8>, record: Record<'_>, env: &Env) {
    if Text::of(record).is_err() {
        return;
    }
    lines.extend_from_slice(b"key=");
    for byte in record.key() {
        match byte {
            b'-' | b'.' | b'_' | b'~' => lines.push(*byte),
            _ if byte.is_ascii_alphanumeric() => lines.push(*byte),
            _ => lines.extend_from_slice(format!("%{byte:02X}").as_bytes()),
        }
    }
    let idle_s = env.known_idle_s(record.clock());
    let rest = format!(
        " exp={} la={} cas={} fetch={} cls=1 size={}\n",
        record.expiry_ms().map_or(-1, |ms| (ms / 1000) as i64),
        env.now_ms / 1000 - u64::from(idle_s),
        Item::of(record).id,
        if record.is_marked() { "yes" } else { "no" },
        record.allocated_bytes(),
    );
    lines.extend_from_slice(rest.as_bytes());
}
