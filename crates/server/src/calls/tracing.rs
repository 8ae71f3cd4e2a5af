//! Calls that are traced: what they wait for before they are run, and how long they take.

use kvasir_keyspace::command::Run;
use kvasir_keyspace::database::Keyspace;
use kvasir_keyspace::execute::lock_unless_busy;
use kvasir_keyspace::spec::Flags;
use kvasir_reactor::clock::{Ticks, ticks};
use kvasir_resp::args::Args;
use kvasir_structures::gate::Pass;
use kvasir_table::{Entry, Handler};

use crate::calls::invocation::Invocation;
use crate::clients::traces::words;
use crate::state::connection::Connection;
use crate::state::connection::trace::{Begun, Parsing, Pending};

/// Before a call is run, of a connection that is traced: it was parsed in that time, and has come
/// to the gate then. Its slots are locked once for nothing, which tells how long that takes: the
/// call that follows finds them free as a rule.
#[cold]
pub fn begin(
    keyspace: &Keyspace,
    pass: Option<&Pass<'_>>,
    call: &Invocation<'_>,
    parsed: Option<Parsing>,
    came: Ticks,
) -> Begun {
    let entered = ticks();
    let at_gate = entered.since(came).to_nanos();
    let locks_slots = match call.entry.handler {
        Handler::Data(command) => matches!(command.run, Run::Keys(_) | Run::Planned(..)),
        Handler::Server(_) => false,
    };
    let mut at_slots = 0;
    if let (true, Some(pass), Some(keys)) = (locks_slots, pass, call.planned) {
        drop(lock_unless_busy(keyspace, pass, keys));
        at_slots = ticks().since(entered).to_nanos();
    }
    Begun::now(parsed, at_gate + at_slots)
}

/// After it: what is left to happen is that its reply is sent. Calls that nobody may see in MONITOR
/// are not seen here.
#[cold]
pub fn end(
    connection: &mut Connection,
    begun: Begun,
    entry: &'static Entry,
    args: Args<'_>,
    locks: u64,
) {
    if entry.spec.flags.intersects(Flags::ADMIN) {
        return;
    }
    let (now, Begun { mut times, began_us, since }) = (ticks(), begun);
    times.locks += locks;
    times.execution = now.since(since).to_nanos().saturating_sub(locks);
    let waits = connection.waiting.waits.is_some();
    let (words, db) = (words(entry, args), connection.db);
    let pending =
        Pending { entry, words, db, times, began_us, since: now, waits, is_on_way: false };
    connection.add_traced(pending);
}
