//! What a call does with its keys, also where the key specification leaves that open.
//!
//! For most commands the specification is the answer. SET and BITFIELD read their key or not, SORT
//! and GEORADIUS store or not: that is told by their other arguments.

use kvasir_keyspace::plan::{NoKeys, each_key};
use kvasir_keyspace::spec::{Flags, KeyFlags, Spec};
use kvasir_resp::args::Args;

const READ: KeyFlags = KeyFlags::RO.union(KeyFlags::ACCESS);
const OVERWRITE: KeyFlags = KeyFlags::OW.union(KeyFlags::UPDATE);
const READ_AND_WRITE: KeyFlags = KeyFlags::RW.union(KeyFlags::ACCESS).union(KeyFlags::UPDATE);

/// Calls `f` with every key argument of a call, and how the key is used.
#[inline]
pub fn each_key_used(
    spec: &Spec,
    args: Args<'_>,
    mut f: impl FnMut(usize, KeyFlags),
) -> Result<(), NoKeys> {
    let (flags, store) = match spec.name {
        // A subcommand, as CONFIG SET, may have the name of a command with keys.
        _ if spec.keys.is_empty() => return each_key(spec, args, f),
        "set" => (set(args), None),
        "bitfield" => (bitfield(args), None),
        "sort" => (READ, sort_store(args)),
        // Whatever stands at the unit's place, as Valkey has it: what it denies must be denied.
        "georadius" | "georadiusbymember" => (READ, geo_store(args)),
        "migrate" => return migrate(spec, args, f),
        name if name.starts_with("graph.") => return graph(spec, args, f),
        _ => return each_key(spec, args, f),
    };
    if args.len() < 2 {
        return Err(NoKeys);
    }
    f(1, flags);
    store.into_iter().for_each(|arg| f(arg, OVERWRITE));
    Ok(())
}

/// SET reads its key only with GET.
fn set(args: Args<'_>) -> KeyFlags {
    let gets = args.from(3).iter().any(|arg| arg.eq_ignore_ascii_case(b"get"));
    if gets { READ_AND_WRITE } else { OVERWRITE }
}

/// BITFIELD only reads if all it does is GET. What cannot be parsed counts as a write.
fn bitfield(args: Args<'_>) -> KeyFlags {
    let mut at = 2;
    while at < args.len() {
        let left = args.len() - at - 1;
        at += match args[at].to_ascii_lowercase().as_slice() {
            b"get" if left >= 2 => 3,
            b"overflow" if left >= 1 => 2,
            _ => return READ_AND_WRITE,
        };
    }
    READ
}

/// The argument that names where SORT stores; the last one counts.
fn sort_store(args: Args<'_>) -> Option<usize> {
    let (mut at, mut found) = (2, None);
    while at < args.len() {
        at += match args[at].to_ascii_lowercase().as_slice() {
            b"limit" => 3,
            b"get" | b"by" => 2,
            b"store" if at + 1 < args.len() => {
                found = Some(at + 1);
                2
            }
            _ => 1,
        };
    }
    found
}

/// The argument that names where GEORADIUS stores; the last one counts.
fn geo_store(args: Args<'_>) -> Option<usize> {
    let (mut at, mut found) = (5, None);
    while at + 1 < args.len() {
        let stores = ["store", "storedist"].map(str::as_bytes);
        if stores.iter().any(|word| args[at].eq_ignore_ascii_case(word)) {
            at += 1;
            found = Some(at);
        }
        at += 1;
    }
    found
}

/// MIGRATE's keys are the one in front or, where that is empty, those behind KEYS; a call with both
/// is a mistake and has none.
fn migrate(spec: &Spec, args: Args<'_>, mut f: impl FnMut(usize, KeyFlags)) -> Result<(), NoKeys> {
    if args.len() <= 3 {
        return Err(NoKeys);
    }
    let flags = spec.keys[0].flags;
    match keys_word(args) {
        // As in Redis, which asks for the words only where it finds KEYS anywhere before the end.
        None => f(3, flags),
        Some(_) if !(2..args.len() - 1).any(|at| is_keys(&args[at])) => f(3, flags),
        Some(word) if args[3].is_empty() && word + 1 < args.len() => {
            (word + 1..args.len()).for_each(|arg| f(arg, flags));
        }
        Some(_) => return Err(NoKeys),
    }
    Ok(())
}

/// A graph's hash is read, and what is computed stored: behind these words, where they are options.
/// What cannot be parsed fails when it runs, and has the keys in front of it.
fn graph(spec: &Spec, args: Args<'_>, mut f: impl FnMut(usize, KeyFlags)) -> Result<(), NoKeys> {
    let may_store = spec.flags.contains(Flags::WRITE);
    let mut at = 1;
    while at < args.len() {
        let flags = match args[at].to_ascii_lowercase().as_slice() {
            b"all" | b"weighted" => {
                at += 1;
                continue;
            }
            b"hash" => Some(READ),
            b"store" | b"storehash" if may_store => Some(OVERWRITE),
            _ => None,
        };
        if let Some(flags) = flags.filter(|_| at + 1 < args.len()) {
            f(at + 1, flags);
        }
        at += 2;
    }
    Ok(())
}

fn is_keys(word: &[u8]) -> bool {
    word.eq_ignore_ascii_case(b"keys")
}

/// Where MIGRATE's option KEYS stands.
fn keys_word(args: Args<'_>) -> Option<usize> {
    let mut at = 6;
    while at < args.len() {
        at += match args[at].to_ascii_lowercase().as_slice() {
            b"keys" => return Some(at),
            b"auth" => 2,
            b"auth2" => 3,
            _ => 1,
        };
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;
    use kvasir_keyspace::spec::KeySpec;
    use kvasir_resp::args::ArgsBuf;

    fn check(call: &str, expect: &[(usize, KeyFlags)]) {
        let args: ArgsBuf = call.split(' ').collect();
        let table = crate::Table::new(&[]);
        let mut found = Vec::new();
        let spec = table.resolve(args.as_args()).unwrap().spec;
        each_key_used(spec, args.as_args(), |arg, flags| found.push((arg, flags))).unwrap();
        assert_eq!(found, expect, "{call}");
    }

    const MOVED: KeyFlags = KeyFlags::RW.union(KeyFlags::ACCESS).union(KeyFlags::DELETE);

    #[test]
    fn arguments_decide() {
        check("SET k v", &[(1, OVERWRITE)]);
        check("SET get get", &[(1, OVERWRITE)]);
        check("SET k v EX 1 GET", &[(1, READ_AND_WRITE)]);
        check("BITFIELD k GET u8 0 overflow sat get u8 8", &[(1, READ)]);
        check("BITFIELD k GET u8 0 SET u8 8 1", &[(1, READ_AND_WRITE)]);
        check("BITFIELD k INCRBY", &[(1, READ_AND_WRITE)]);
        check("BITFIELD k GET u8", &[(1, READ_AND_WRITE)]);
        check("SORT k BY store", &[(1, READ)]);
        check("SORT k STORE a LIMIT 0 1 STORE b", &[(1, READ), (8, OVERWRITE)]);
        check("SORT k STORE", &[(1, READ)]);
        check("GEORADIUS k 1 2 3 km STORE a STOREDIST b", &[(1, READ), (9, OVERWRITE)]);
        check("GEORADIUSBYMEMBER k m 3 km ASC STORE", &[(1, READ)]);
        check("GEORADIUS k 1 2 3 STORE a", &[(1, READ), (6, OVERWRITE)]);
    }

    #[test]
    fn keys_of_a_graph_stand_behind_its_options() {
        const KEYS: &[KeySpec] = &[KeySpec::range(READ, 1, 0, 1)];
        let storing = Spec { name: "graph.degree", flags: Flags::WRITE, keys: KEYS, ..Spec::BLANK };
        let reading = Spec { name: "graph.degree_ro", flags: Flags::READONLY, ..storing };
        for (call, expect) in [
            ("GRAPH.DEGREE MATCH hash WEIGHTED TOP 1", vec![]),
            ("GRAPH.DEGREE SEPARATORS hash HASH h ALL", vec![(4, READ)]),
            ("GRAPH.DEGREE ALL HASH store STORE hash", vec![(3, READ), (5, OVERWRITE)]),
            ("GRAPH.DEGREE HASH h STOREHASH", vec![(2, READ)]),
            ("GRAPH.DEGREE_RO HASH h STORE a", vec![(2, READ)]),
        ] {
            let (args, mut found): (ArgsBuf, _) = (call.split(' ').collect(), Vec::new());
            let push = |arg, flags| found.push((arg, flags));
            let spec = if call.contains("_RO") { &reading } else { &storing };
            assert!(each_key_used(spec, args.as_args(), push).is_ok());
            assert_eq!(found, expect, "{call}");
        }
    }

    #[test]
    fn a_subcommand_with_the_name_of_another_command_has_no_keys() {
        let spec = Spec { name: "set", ..Spec::BLANK };
        let args: ArgsBuf = "CONFIG SET port 1".split(' ').collect();
        let used = each_key_used(&spec, args.as_args(), |arg, _| panic!("{arg} is no key"));
        assert!(used.is_ok());
    }

    #[test]
    fn keys_to_be_moved() {
        const KEYS: &[KeySpec] = &[KeySpec::range(MOVED, 3, 0, 1)];
        let spec = Spec { name: "migrate", keys: KEYS, ..Spec::BLANK };
        let calls = [
            ("MIGRATE h 1 k 0 9 AUTH keys x", Some(vec![3])),
            ("MIGRATE h 1 k 0 9 KEYS", Some(vec![3])),
            ("MIGRATE h 1 k 0 9 KEYS a", None),
            ("MIGRATE h 1 keys 0 9 KEYS", None),
            ("MIGRATE h 1 keys 0 9 COPY", Some(vec![3])),
            ("MIGRATE h 1  0 9 AUTH keys KEYS a b", Some(vec![9, 10])),
        ];
        for (call, expect) in calls {
            let (args, mut found): (ArgsBuf, _) = (call.split(' ').collect(), Vec::new());
            let used = each_key_used(&spec, args.as_args(), |arg, _| found.push(arg));
            assert_eq!(used.ok().map(|()| found), expect, "{call}");
        }
    }
}
