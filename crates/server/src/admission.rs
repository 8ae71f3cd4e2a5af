//! Whether a call may run: what Redis checks before a command runs, in its order.
//!
//! Each concern is a function of its own file and one line here: number of arguments, who the
//! client is, what its user may do, subscriptions, a busy script. Memory comes behind them (`evict`).

use kvasir_keyspace::error::Error;
use kvasir_keyspace::spec::Flags;
use kvasir_resp::args::Args;

use crate::connection::Connection;
use crate::dispatch::Entry;

/// Fails with the error to reply if the call may not run.
#[inline]
pub fn check(connection: &Connection, entry: &Entry, args: Args<'_>) -> Result<(), Error> {
    // A container is only called without a word, which its arity tells.
    if !entry.spec.accepts_count(args.len()) {
        return Err(Error::wrong_arity(&entry.full_name));
    }
    if !connection.is_authenticated && !entry.spec.flags.contains(Flags::NO_AUTH) {
        return Err(Error::fixed("NOAUTH Authentication required."));
    }
    Ok(())
}
