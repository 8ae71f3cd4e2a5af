//! The check of one call of a connection, with all that follows when it is denied.

use kvasir_acl::call::Call;
use kvasir_acl::check::{Denied, Reason, check};
use kvasir_acl::log::{Context, Denial};
use kvasir_keyspace::error::Error;
use kvasir_keyspace::spec::{Flags, Traits};
use kvasir_resp::args::Args;
use kvasir_table::Entry;

use crate::clients::Client;
use crate::clients::line::write_line;
use crate::state::connection::Connection;
use crate::state::core::Core;
use crate::state::shared::Shared;

/// When a call is looked at: it decides the words of the error, and the context in ACL LOG.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Moment {
    /// A client sent it.
    Arrival,
    /// A client sent it after MULTI.
    Queueing,
    /// EXEC comes to it.
    Exec,
    /// A script makes it.
    Script,
}

impl Moment {
    fn context(self) -> Context {
        match self {
            Moment::Arrival => Context::TopLevel,
            Moment::Queueing | Moment::Exec => Context::Multi,
            Moment::Script => Context::Script,
        }
    }
}

/// What a denial is counted and logged with.
#[derive(Clone, Copy)]
pub struct Scene<'a> {
    pub shared: &'static Shared,
    pub worker: usize,
    pub core: &'a Core,
}

const NOT_AUTHENTICATED: Error = Error::fixed("NOAUTH Authentication required.");

/// Whether a connection's user may make a call that has come, and whose arity was checked.
#[inline]
pub fn admit(
    scene: Scene<'_>,
    connection: &mut Connection,
    entry: &Entry,
    args: Args<'_>,
) -> Result<(), Error> {
    if connection.access.is_free(&scene.shared.acl) {
        return Ok(());
    }
    let moment =
        if connection.multi.transaction.is_some() { Moment::Queueing } else { Moment::Arrival };
    look(scene, connection, entry, args, moment)
}

/// As `admit`, for a call that the client did not send just now.
pub fn admit_later(
    scene: Scene<'_>,
    connection: &mut Connection,
    entry: &Entry,
    args: Args<'_>,
    moment: Moment,
) -> Result<(), Error> {
    if connection.access.is_free(&scene.shared.acl) {
        return Ok(());
    }
    look(scene, connection, entry, args, moment)
}

#[cold]
fn look(
    scene: Scene<'_>,
    connection: &mut Connection,
    entry: &Entry,
    args: Args<'_>,
    moment: Moment,
) -> Result<(), Error> {
    let Scene { shared, core, .. } = scene;
    if connection.access.is_unbound() {
        return Ok(());
    }
    if connection.access.refresh(&shared.acl, &shared.table).is_err() {
        connection.is_closing = true;
        return Err(NOT_AUTHENTICATED);
    }
    if connection.access.is_free(&shared.acl) {
        return Ok(());
    }
    let needs_no_user = entry.spec.flags.contains(Flags::NO_AUTH);
    if !needs_no_user && !connection.access.may_go_on(&shared.acl) {
        return Err(NOT_AUTHENTICATED);
    }
    let call = Call { entry, args, db: connection.db, databases: core.config.databases };
    let user = connection.access.user();
    if let Err(denied) = check(user, &call) {
        note_denied(scene, &connection.client, &user.name, &call, denied, moment);
        return Err(match moment {
            Moment::Arrival | Moment::Queueing => denied.error(user, &call),
            Moment::Exec => denied.error_in_exec(),
            Moment::Script => denied.error_in_script(user, &call),
        });
    }
    // Redis looks at this when the command runs, so not while it is queued.
    if moment == Moment::Queueing { Ok(()) } else { check_sort(connection, &call) }
}

/// SORT's BY and GET read keys that their patterns make up, so they need the right to all.
fn check_sort(connection: &Connection, call: &Call<'_>) -> Result<(), Error> {
    if !call.entry.spec.traits.contains(Traits::READS_PATTERNS) {
        return Ok(());
    }
    let Some(option) = option_with_pattern(call.args) else { return Ok(()) };
    if connection.access.user().may_read_all_keys(call) {
        return Ok(());
    }
    Err(Error::new(format!(
        "ERR {option} option of SORT denied due to insufficient ACL permissions."
    )))
}

/// The first option that reads other keys; none behind what is no option.
pub fn option_with_pattern(args: Args<'_>) -> Option<&'static str> {
    let mut at = 2;
    loop {
        let left = args.len().checked_sub(at + 1)?;
        at += match args[at].to_ascii_lowercase().as_slice() {
            b"asc" | b"desc" | b"alpha" => 1,
            b"limit" if left >= 2 => 3,
            b"store" if left >= 1 => 2,
            // Without a `*` it means not to sort.
            b"by" if left >= 1 && !args[at + 1].contains(&b'*') => 2,
            b"by" if left >= 1 => return Some("BY"),
            b"get" if left >= 1 => return Some("GET"),
            _ => return None,
        };
    }
}

fn note_denied(
    scene: Scene<'_>,
    client: &Client,
    user: &[u8],
    call: &Call<'_>,
    denied: Denied,
    moment: Moment,
) {
    let stats = &scene.shared.workers[scene.worker].stats;
    let counter = match denied.reason {
        Reason::Command => &stats.denied_command,
        Reason::Key => &stats.denied_key,
        Reason::Channel => &stats.denied_channel,
        Reason::Database => &stats.denied_database,
    };
    counter.add(1);
    let object = match denied.arg {
        0 => call.entry.full_name.as_bytes(),
        arg => &call.args[arg],
    };
    add_to_log(scene, client, denied.reason.name(), moment.context(), object, user);
}

/// Counts and logs a wrong password. `object` is the command as it was written.
pub fn note_wrong_password(scene: Scene<'_>, client: &Client, object: &[u8], user: &[u8]) {
    scene.shared.workers[scene.worker].stats.denied_auth.add(1);
    add_to_log(scene, client, "auth", Context::TopLevel, object, user);
}

fn add_to_log(
    scene: Scene<'_>,
    client: &Client,
    reason: &'static str,
    context: Context,
    object: &[u8],
    user: &[u8],
) {
    let Scene { shared, core, .. } = scene;
    let now_ms = core.env.now_ms;
    let mut line = String::new();
    write_line(&mut line, client, &shared.table, now_ms);
    let denial = Denial { reason, context, object: object.to_vec(), user: user.to_vec() };
    let len_max = usize::try_from(core.config.acllog_max_len).unwrap_or(usize::MAX);
    shared.acl.log().add(denial, line, now_ms, len_max);
}

#[cfg(test)]
mod tests {
    use super::*;
    use kvasir_resp::args::ArgsBuf;

    #[test]
    fn options_of_sort_that_read_other_keys() {
        for (call, option) in [
            ("SORT k", None),
            ("SORT k BY w_*", Some("BY")),
            ("SORT k by nosort GET #", Some("GET")),
            ("SORT k ALPHA DESC LIMIT 0 1 STORE by GET x", Some("GET")),
            ("SORT k STORE by", None),
            ("SORT k nonsense BY w_*", None),
            ("SORT k BY", None),
        ] {
            let args: ArgsBuf = call.split(' ').collect();
            assert_eq!(option_with_pattern(args.as_args()), option, "{call}");
        }
    }
}
