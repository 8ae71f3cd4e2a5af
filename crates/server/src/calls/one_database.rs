//! A cluster has one database, and a call touches the keys that it names: what it refuses besides.

use kvasir_keyspace::error::Error;
use kvasir_keyspace::spec::Traits;
use kvasir_resp::args::Args;
use kvasir_resp::number::parse_integer;
use kvasir_table::Entry;

use crate::calls::admit::option_with_pattern;
use crate::state::shared::Shared;

const LEAVING: Traits =
    Traits::LEAVES_DATABASE.union(Traits::NAMED_DATABASES).union(Traits::READS_PATTERNS);

/// Fails if this is a node of a cluster, and the call wants another database, or keys that it does
/// not name.
#[inline]
pub fn check(shared: &Shared, entry: &Entry, args: Args<'_>) -> Result<(), Error> {
    if shared.cluster.is_none() || !entry.spec.traits.intersects(LEAVING) {
        return Ok(());
    }
    why_not(entry, args).map_or(Ok(()), |text| Err(Error::new(text)))
}

fn why_not(entry: &Entry, args: Args<'_>) -> Option<String> {
    let name = entry.spec.name;
    match name {
        "sort" | "sort_ro" => option_with_pattern(args)
            .map(|option| format!("ERR {option} option of SORT denied in Cluster mode.")),
        "copy" => {
            let options = args.from(3);
            let is_db = |at: &usize| options[*at].eq_ignore_ascii_case(b"db");
            let word = (0..options.len()).find(is_db).and_then(|at| options.get(at + 1));
            let db = word.and_then(parse_integer).filter(|db| *db != 0);
            db.map(|_| "ERR Copying to another database is not allowed in cluster mode".into())
        }
        _ => Some(format!("ERR {} is not allowed in cluster mode", name.to_ascii_uppercase())),
    }
}
