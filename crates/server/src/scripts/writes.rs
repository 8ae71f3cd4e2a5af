//! Whether a call may change data, or reach clients of other servers.

use kvasir_keyspace::spec::{Flags, Group, Traits};
use kvasir_lua::interpreter::Sha;
use kvasir_lua::shebang::parse_script;
use kvasir_resp::args::Args;
use kvasir_table::Entry;

use crate::scripts::cache::Cache;
use crate::scripts::libraries::Libraries;

/// Whether calls of a command may, whatever their arguments.
pub fn may_write(entry: &Entry) -> bool {
    let spec = entry.spec;
    spec.flags.contains(Flags::WRITE) || spec.traits.contains(Traits::MAY_REPLICATE)
}

/// Whether this call may: one of a script or of a function that says that it writes nothing does
/// not.
pub fn may_call_write(
    scripts: &Cache,
    libraries: &Libraries,
    entry: &Entry,
    args: Args<'_>,
) -> bool {
    let is_harmless = || {
        let what = args.get(1)?;
        Some(match entry.spec.name {
            "eval" => parse_script(what).is_ok_and(|flags| flags.no_writes),
            "evalsha" => {
                let sha = <Sha>::try_from(what.to_ascii_lowercase()).ok()?;
                scripts.find(&sha)?.flags.no_writes
            }
            _ => libraries.function(what)?.info.flags.no_writes,
        })
    };
    may_write(entry) && !(runs_code(entry) && is_harmless().unwrap_or(false))
}

fn runs_code(entry: &Entry) -> bool {
    entry.spec.group == Group::Scripting && entry.spec.traits.contains(Traits::MAY_REPLICATE)
}
