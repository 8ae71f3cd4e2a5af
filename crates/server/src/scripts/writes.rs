//! Whether a call may change data, or reach clients of other servers.

use kvasir_keyspace::spec::{self, Group, Traits};
use kvasir_lua::interpreter::Sha;
use kvasir_lua::shebang::{Flags, parse_script};
use kvasir_resp::args::Args;
use kvasir_table::Entry;

use crate::scripts::cache::Cache;
use crate::scripts::libraries::Libraries;

/// Whether calls of a command may, whatever their arguments.
pub fn may_write(entry: &Entry) -> bool {
    let spec = entry.spec;
    spec.flags.contains(spec::Flags::WRITE) || spec.traits.contains(Traits::MAY_REPLICATE)
}

/// Whether this call may: one of a script or of a function that says that it writes nothing does
/// not.
pub fn may_call_write(
    scripts: &Cache,
    libraries: &Libraries,
    entry: &Entry,
    args: Args<'_>,
) -> bool {
    let flags = flags_of(scripts, libraries, entry, args);
    may_write(entry) && !flags.is_some_and(|flags| flags.no_writes)
}

/// Whether a command writes whatever its arguments, or its code says that it does by not saying
/// that it doesn't.
pub fn says_that_it_writes(
    scripts: &Cache,
    libraries: &Libraries,
    entry: &Entry,
    args: Args<'_>,
) -> bool {
    let flags = flags_of(scripts, libraries, entry, args);
    entry.spec.flags.contains(spec::Flags::WRITE)
        || flags.is_some_and(|flags| flags.given && !flags.no_writes)
}

/// What the code says of itself that a call runs.
fn flags_of(
    scripts: &Cache,
    libraries: &Libraries,
    entry: &Entry,
    args: Args<'_>,
) -> Option<Flags> {
    if !runs_code(entry) {
        return None;
    }
    let what = args.get(1)?;
    Some(match entry.spec.name {
        "eval" => parse_script(what).ok()?,
        "evalsha" => {
            let sha = <Sha>::try_from(what.to_ascii_lowercase()).ok()?;
            scripts.find(&sha)?.flags
        }
        _ => libraries.function(what)?.info.flags,
    })
}

fn runs_code(entry: &Entry) -> bool {
    entry.spec.group == Group::Scripting && entry.spec.traits.contains(Traits::MAY_REPLICATE)
}
