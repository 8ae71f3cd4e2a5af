//! Calls of clients on slots that move: with its keys held it is known which of them are here.

use kvasir_keyspace::error::Error;
use kvasir_keyspace::place::DbIndex;
use kvasir_keyspace::spec::Traits;
use kvasir_keyspace::view::Env;
use kvasir_keyspace::watching::has_expired;
use kvasir_resp::args::{Args, ArgsBuf};
use kvasir_structures::gate::Pass;
use kvasir_structures::hash;
use kvasir_table::Entry;

use crate::calls::invocation::Invocation;
use crate::calls::planning::plan_slots;
use crate::calls::routing::{self, Found, IN_FLIGHT, Route, Wish};
use crate::cluster::Node;
use crate::run::session::Session;
use crate::scripts::writes::may_call_write;
use crate::state::connection::Connection;
use crate::state::connection::transaction::Queued;
use crate::state::shared::Shared;

/// Runs a call whose slot moves, if its keys are here to be used.
pub fn run_moving(mut session: Session) -> (Session, Result<(), Error>) {
    let result = hold_and_call(&mut session);
    (session, result)
}

fn hold_and_call(session: &mut Session) -> Result<(), Error> {
    let shared = session.shared();
    let args: ArgsBuf = session.args().iter().collect();
    let args = args.as_args();
    let entry = shared.table.resolve(args).map_err(|_| Error::SYNTAX)?;
    let (mut keys, db) = (Vec::new(), session.connection.db);
    match plan_slots(&shared.keyspace, entry, args, db, &mut keys) {
        true => session.hold_keys(&keys)?,
        false => session.hold_world()?,
    }
    let wish = Wish::of(shared, &session.connection, entry, args);
    session.check_routes(wish, [(entry, args)].into_iter())?;
    session.call_own(entry, args)
}

/// Fails if keys of a call on a slot that moves are not here to be used right now. With that calls
/// are told what is the matter before anything else is, as in Redis, and those that come to a key
/// on its way wait for it; those about data are looked at again with their keys held.
pub fn check_now(
    shared: &Shared,
    node: &Node,
    connection: &Connection,
    pass: &Pass<'_>,
    env: &Env,
    call: &Invocation<'_>,
    route: Route,
) -> Result<(), Error> {
    let Route::Moving(moving) = route else {
        return match writes_in_flight(shared, node, connection) {
            true => Err(IN_FLIGHT),
            false => Ok(()),
        };
    };
    if connection.multi.transaction.is_some() {
        // Is looked at with all that was queued, when it runs, as in Valkey.
        return Ok(());
    }
    let keys = keys_of(call.entry, call.args);
    let keyspace = &shared.keyspace;
    let slot = keyspace.database(DbIndex(0), pass).slot(moving.slot);
    // Where a script has it the call fails of that.
    let Some(slot) = slot.lock_unless(pass, || keyspace.busy.is_busy()) else { return Ok(()) };
    let writes = may_call_write(&shared.scripts, &shared.libraries, call.entry, call.args);
    if writes && node.in_flight.has_any(&keys) {
        return Err(IN_FLIGHT);
    }
    if call.entry.spec.traits.contains(Traits::SENDS_KEYS) || connection.wire.parser.is_memcached()
    {
        return Ok(());
    }
    let is_here =
        |key: &&Vec<u8>| slot.get(hash::of(key), key).is_some() && !has_expired(&slot, env, key);
    let present = keys.iter().filter(is_here).count();
    drop(slot);
    let found = Found { present, missing: keys.len() - present };
    routing::judge_moving(shared, node, moving, found, connection.wire.tls.is_some())
}

/// As [`check_now`], of a call that runs.
pub fn check_again(
    shared: &'static Shared,
    node: &Node,
    connection: &Connection,
    pass: &Pass<'_>,
    env: &Env,
    args: Args<'_>,
) -> Result<(), Error> {
    let entry = shared.table.resolve(args).map_err(|_| Error::SYNTAX)?;
    let call = &Invocation { entry, args, planned: None };
    match routing::route(shared, node, connection, call)? {
        Route::Here => Ok(()),
        route => check_now(shared, node, connection, pass, env, call, route),
    }
}

/// Whether calls that were queued may write to a key that is on its way.
fn writes_in_flight(shared: &Shared, node: &Node, connection: &Connection) -> bool {
    let Some(transaction) = &connection.multi.transaction else { return false };
    node.in_flight.are_there()
        && transaction.calls.iter().any(|Queued { entry, args }| {
            let args = args.as_args();
            may_call_write(&shared.scripts, &shared.libraries, entry, args)
                && node.in_flight.has_any(&keys_of(entry, args))
        })
}

/// The keys that a call names, each once. A malformed call fails when it runs.
fn keys_of(entry: &Entry, args: Args<'_>) -> Vec<Vec<u8>> {
    let mut keys = Vec::new();
    let _ = kvasir_table::keys::each_key_used(entry.spec, args, |arg, _| {
        keys.push(args[arg].to_vec());
    });
    keys.sort();
    keys.dedup();
    keys
}

impl Session {
    /// Fails if keys of these calls, which are held, are not here to be used.
    pub fn check_routes<'a>(
        &self,
        wish: Wish,
        calls: impl Iterator<Item = (&'a Entry, Args<'a>)>,
    ) -> Result<(), Error> {
        let shared = self.shared();
        let Some(node) = &shared.cluster else { return Ok(()) };
        if !self.has_client() {
            return Ok(());
        }
        let (mut slots, mut keys, mut written) = (Vec::new(), Vec::new(), Vec::new());
        for (entry, args) in calls {
            slots.extend(routing::slots_of(entry, args));
            let first = keys.len();
            // A malformed call fails when it runs.
            let _ = kvasir_table::keys::each_key_used(entry.spec, args, |arg, _| {
                keys.push(args[arg].to_vec());
            });
            if may_call_write(&shared.scripts, &shared.libraries, entry, args) {
                written.extend_from_slice(&keys[first..]);
            }
        }
        let Some(slot) = routing::one_slot(slots.into_iter())? else { return Ok(()) };
        let Route::Moving(moving) = routing::route_slot(shared, node, slot, wish)? else {
            return Ok(());
        };
        if node.in_flight.has_any(&written) {
            return Err(IN_FLIGHT);
        }
        keys.sort();
        keys.dedup();
        let present = keys.iter().filter(|key| self.has_key(DbIndex(0), key)).count();
        let found = Found { present, missing: keys.len() - present };
        routing::judge_moving(shared, node, moving, found, wish.is_tls)
    }
}
