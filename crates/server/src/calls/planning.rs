//! Which keys a call has, and whether it may run on their slots alone.

use kvasir_keyspace::command::Run;
use kvasir_keyspace::database::Keyspace;
use kvasir_keyspace::error::Error;
use kvasir_keyspace::place::DbIndex;
use kvasir_keyspace::plan::{self, KeyAt};
use kvasir_keyspace::spec::Group;
use kvasir_resp::args::Args;
use kvasir_table::keys::each_key_used;
use kvasir_table::{Entry, Handler, ServerHandler, Way};

/// Appends the keys of a call whose arguments have the right number; none on an error. Of the
/// server's commands those have keys that run others.
pub fn plan_keys(
    entry: &Entry,
    args: Args<'_>,
    db: DbIndex,
    keyspace: &Keyspace,
    keys: &mut Vec<KeyAt>,
) -> Result<(), Error> {
    if entry.spec.keys.is_empty() && matches!(entry.handler, Handler::Server(_))
        || !entry.spec.accepts_count(args.len())
    {
        return Ok(());
    }
    let first = keys.len();
    let planned = match entry.handler {
        Handler::Data(command) => plan::keys(keyspace, command, args, db, keys),
        // A call that does not say where its keys are fails when it is run.
        Handler::Server(ServerHandler { way: Way::Session, .. }) => {
            let find = |arg, _| keys.push(KeyAt::new(args, arg, db));
            each_key_used(entry.spec, args, find).map_err(|_| Error::SYNTAX)
        }
        Handler::Server(_) => Ok(()),
    };
    planned.inspect_err(|_| keys.truncate(first))
}

/// Appends the keys of a call that may run on locked slots; `false` if it needs the gate closed.
pub fn plan_slots(
    keyspace: &Keyspace,
    entry: &Entry,
    args: Args<'_>,
    db: DbIndex,
    keys: &mut Vec<KeyAt>,
) -> bool {
    match entry.handler {
        Handler::Data(command) => match command.run {
            // What cannot be planned fails when it is called, and touches nothing.
            Run::Keys(_) | Run::Planned(..) => {
                let first = keys.len();
                if plan::keys(keyspace, command, args, db, keys).is_err() {
                    keys.truncate(first);
                }
                true
            }
            Run::Roam(_) | Run::World(_) | Run::Container(_) => false,
        },
        // Those may look at any key.
        Handler::Server(ServerHandler { way, .. }) => {
            let is_plain = matches!(way, Way::Plain | Way::Family);
            is_plain && matches!(entry.spec.group, Group::Connection | Group::Pubsub)
        }
    }
}
