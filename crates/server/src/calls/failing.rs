//! The one place where errors are written to clients.

use kvasir_keyspace::error::Error;

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
    connection.reply.error_bytes(error.text());
    shared.count_error(worker, error.text(), author);
}
