//! The one place where errors are written to clients.

use kvasir_keyspace::error::Error;
use kvasir_memcached::item::Count;

use crate::state::connection::Connection;
use crate::state::shared::Shared;
use crate::stats::errors::Author;

/// Replies with an error, and counts it.
pub fn fail(
    shared: &Shared,
    worker: usize,
    connection: &mut Connection,
    error: &Error,
    author: Author,
) {
    if connection.wire.parser.is_memcached() {
        if error.text().starts_with(b"OOM") {
            shared.workers[worker].stats.memcached[Count::NoMemory as usize].add(1);
        }
        write_memcached(connection, error);
    } else {
        connection.reply.error_bytes(error.text());
    }
    shared.count_error(worker, error.text(), author);
}

/// What is not the client's fault is a `SERVER_ERROR`. Of the texts memcached has some itself.
#[cold]
fn write_memcached(connection: &mut Connection, error: &Error) {
    let text = error.text();
    let code = text.split(|byte| *byte == b' ').next().unwrap_or_default();
    let (kind, text): (&[u8], &[u8]) = match code {
        b"NOAUTH" => (b"CLIENT_ERROR ", b"unauthenticated"),
        b"OOM" => (b"SERVER_ERROR ", b"out of memory storing object"),
        b"NOPERM" => (b"CLIENT_ERROR ", text),
        _ => (b"SERVER_ERROR ", text),
    };
    let reply = &mut connection.reply;
    reply.raw(kind);
    let plain = text.iter().map(|byte| if matches!(byte, b'\r' | b'\n') { b' ' } else { *byte });
    reply.raw(&plain.collect::<Vec<u8>>());
    reply.raw(b"\r\n");
}
