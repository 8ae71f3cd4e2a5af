//! An entry of the command table in the shape of COMMAND INFO.
//!
//! Field by field as Redis 7 replies: <https://redis.io/docs/latest/commands/command/>.

use kvasir_keyspace::spec::{Begin, Find, Flags, KeyFlags, KeySpec, Spec};
use kvasir_resp::reply::Reply;
use kvasir_table::categories::categories;
use kvasir_table::{Entry, Table};

/// In the order in which Redis lists them.
const FLAG_NAMES: [(Flags, &str); 19] = [
    (Flags::WRITE, "write"),
    (Flags::READONLY, "readonly"),
    (Flags::DENYOOM, "denyoom"),
    (Flags::ADMIN, "admin"),
    (Flags::PUBSUB, "pubsub"),
    (Flags::NOSCRIPT, "noscript"),
    (Flags::BLOCKING, "blocking"),
    (Flags::LOADING, "loading"),
    (Flags::STALE, "stale"),
    (Flags::SKIP_MONITOR, "skip_monitor"),
    (Flags::SKIP_SLOWLOG, "skip_slowlog"),
    (Flags::ASKING, "asking"),
    (Flags::FAST, "fast"),
    (Flags::NO_AUTH, "no_auth"),
    (Flags::NO_MANDATORY_KEYS, "no_mandatory_keys"),
    (Flags::NO_ASYNC_LOADING, "no_async_loading"),
    (Flags::NO_MULTI, "no_multi"),
    (Flags::MOVABLEKEYS, "movablekeys"),
    (Flags::ALLOW_BUSY, "allow_busy"),
];

const KEY_FLAG_NAMES: [(KeyFlags, &str); 11] = [
    (KeyFlags::RO, "RO"),
    (KeyFlags::RW, "RW"),
    (KeyFlags::OW, "OW"),
    (KeyFlags::RM, "RM"),
    (KeyFlags::ACCESS, "access"),
    (KeyFlags::UPDATE, "update"),
    (KeyFlags::INSERT, "insert"),
    (KeyFlags::DELETE, "delete"),
    (KeyFlags::NOT_KEY, "not_key"),
    (KeyFlags::INCOMPLETE, "incomplete"),
    (KeyFlags::VARIABLE_FLAGS, "variable_flags"),
];

/// The ten fields of one command; of a container's subcommands too.
pub fn write_info(reply: &mut Reply, table: &Table, entry: &Entry) {
    let spec = entry.spec;
    let flags = flags(spec);
    reply.array(10);
    reply.bulk(entry.full_name.as_bytes());
    reply.integer(spec.arity.into());
    write_names(reply, &FLAG_NAMES, |flag| flags.contains(flag));
    plain_range(spec).into_iter().for_each(|number| reply.integer(number));
    let categories = categories(entry);
    reply.set(categories.len());
    categories.iter().for_each(|category| reply.simple(&format!("@{category}")));
    reply.set(spec.tips.len());
    spec.tips.iter().for_each(|tip| reply.bulk(tip.as_bytes()));
    reply.set(spec.keys.len());
    spec.keys.iter().for_each(|key| write_key_spec(reply, key));
    reply.set(entry.subcommands.len());
    for sub in &entry.subcommands {
        write_info(reply, table, &table.entries()[*sub]);
    }
}

/// The names of the flags that COMMAND INFO shows.
pub fn flag_names(spec: &Spec) -> Vec<&'static str> {
    let flags = flags(spec);
    let set = FLAG_NAMES.iter().filter(|(flag, _)| flags.contains(*flag));
    set.map(|(_, name)| *name).collect()
}

/// The row's flags, and `movablekeys` where no plain range tells the keys.
fn flags(spec: &Spec) -> Flags {
    let is_plain = |key: &KeySpec| {
        matches!((key.begin, key.find), (Begin::Index(_), Find::Range { .. }))
            && !key.flags.contains(KeyFlags::INCOMPLETE)
    };
    if spec.keys.iter().all(is_plain) { spec.flags } else { spec.flags | Flags::MOVABLEKEYS }
}

/// First key, last key and step, as clients knew them before there were key specifications: what
/// the specifications that are plain ranges, one behind the other, say together.
fn plain_range(spec: &Spec) -> [i64; 3] {
    let ranges = spec.keys.iter().filter_map(|key| match (key.begin, key.find) {
        (Begin::Index(first), Find::Range { last, step, .. }) => {
            let first = i64::from(first);
            let last = i64::from(last);
            Some([first, if last >= 0 { first + last } else { last }, i64::from(step)])
        }
        _ => None,
    });
    let joined = ranges.reduce(|one, next| match (one, next) {
        ([first, last, 1], [start, end, 1]) if last + 1 == start => [first, end, 1],
        (one, _) => one,
    });
    joined.unwrap_or_default()
}

/// Writes the names of the flags that are set, as a set of statuses.
fn write_names<F: Copy>(reply: &mut Reply, names: &[(F, &str)], is_set: impl Fn(F) -> bool) {
    let set = || names.iter().filter(|(flag, _)| is_set(*flag));
    reply.set(set().count());
    set().for_each(|(_, name)| reply.simple(name));
}

pub fn write_key_flags(reply: &mut Reply, flags: KeyFlags) {
    write_names(reply, &KEY_FLAG_NAMES, |flag| flags.contains(flag));
}

fn write_key_spec(reply: &mut Reply, key: &KeySpec) {
    reply.map(if key.notes.is_some() { 4 } else { 3 });
    if let Some(notes) = key.notes {
        reply.bulk(b"notes");
        reply.bulk(notes.as_bytes());
    }
    reply.bulk(b"flags");
    write_key_flags(reply, key.flags);
    reply.bulk(b"begin_search");
    match key.begin {
        Begin::Index(index) => write_step(reply, "index", &[("index", index.into())]),
        Begin::Keyword { word, from } => {
            write_step_head(reply, "keyword", 2);
            reply.bulk(b"keyword");
            reply.bulk(word.as_bytes());
            reply.bulk(b"startfrom");
            reply.integer(from.into());
        }
        Begin::Unknown => write_step_head(reply, "unknown", 0),
    }
    reply.bulk(b"find_keys");
    match key.find {
        Find::Range { last, step, limit } => {
            let numbers =
                [("lastkey", last.into()), ("keystep", step.into()), ("limit", limit.into())];
            write_step(reply, "range", &numbers);
        }
        Find::Count { count, first, step } => {
            let numbers =
                [("keynumidx", count.into()), ("firstkey", first.into()), ("keystep", step.into())];
            write_step(reply, "keynum", &numbers);
        }
        Find::Unknown => write_step_head(reply, "unknown", 0),
    }
}

fn write_step(reply: &mut Reply, kind: &str, numbers: &[(&str, i64)]) {
    write_step_head(reply, kind, numbers.len());
    for (name, number) in numbers {
        reply.bulk(name.as_bytes());
        reply.integer(*number);
    }
}

fn write_step_head(reply: &mut Reply, kind: &str, fields: usize) {
    reply.map(2);
    reply.bulk(b"type");
    reply.bulk(kind.as_bytes());
    reply.bulk(b"spec");
    reply.map(fields);
}
