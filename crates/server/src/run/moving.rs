//! Calls of clients on slots that move: with its keys held it is known which of them are here.

use kvasir_keyspace::error::Error;
use kvasir_keyspace::place::DbIndex;
use kvasir_resp::args::{Args, ArgsBuf};
use kvasir_table::Entry;

use crate::calls::planning::plan_slots;
use crate::calls::routing::{self, Found, Route, TRY_AGAIN, Wish};
use crate::run::session::Session;
use crate::scripts::writes::may_call_write;

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
            return Err(TRY_AGAIN);
        }
        keys.sort();
        keys.dedup();
        let present = keys.iter().filter(|key| self.has_key(DbIndex(0), key)).count();
        let found = Found { present, missing: keys.len() - present };
        routing::judge_moving(shared, node, moving, found, wish.is_tls)
    }
}
