//! `stats cachedump`: some keys, for people who look what is there.

use std::fmt::Write;

use kvasir_keyspace::error::Error;
use kvasir_keyspace::place::DbIndex;
use kvasir_keyspace::value::{Record, Text};
use kvasir_memcached::item::say;
use kvasir_structures::gate::Pass;

use crate::state::connection::Connection;
use crate::state::core::Core;
use crate::state::shared::Shared;

/// No answer is longer, as in memcached.
const BYTES_MAX: usize = 2 << 20;

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
    connection.reply.raw(&lines);
    connection.reply.raw(b"END\r\n");
    Ok(())
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
