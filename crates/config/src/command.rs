//! CONFIG GET and CONFIG SET as pure functions over a configuration.
//!
//! Order of checks and texts of errors are those of Redis 7.0. Whoever calls `set` puts the new
//! configuration in force, or drops it: nothing is half set.

use crate::row::{Change, Row};
use crate::unsupported::Unsupported;
use crate::{Config, table};

/// Why CONFIG SET changes nothing. `message` is the text of the error reply.
#[derive(Debug, PartialEq, Eq)]
pub enum SetError {
    /// A name without a value.
    Odd,
    /// The name as the client wrote it.
    Unknown(Vec<u8>),
    Failed {
        name: Vec<u8>,
        reason: String,
    },
}

impl SetError {
    /// With error code, without line end. May hold any byte of what the client sent.
    pub fn message(&self) -> Vec<u8> {
        match self {
            SetError::Odd => b"ERR syntax error".to_vec(),
            SetError::Unknown(name) => {
                let start = b"ERR Unknown option or number of arguments for CONFIG SET - '";
                [start, name.as_slice(), b"'"].concat()
            }
            SetError::Failed { name, reason } => {
                let start = b"ERR CONFIG SET failed (possibly related to argument '";
                [start, name.as_slice(), b"') - ", reason.as_bytes()].concat()
            }
        }
    }
}

/// The options whose name, or an older name, matches one of `patterns`, in the table's order.
/// `matches` compares a pattern in lower case with a name.
pub fn get<P: AsRef<[u8]>>(
    config: &Config,
    patterns: &[P],
    matches: impl Fn(&[u8], &[u8]) -> bool,
) -> Vec<(&'static str, Vec<u8>)> {
    let patterns: Vec<_> = patterns.iter().map(|p| p.as_ref().to_ascii_lowercase()).collect();
    let wanted = |name: &str| patterns.iter().any(|pattern| matches(pattern, name.as_bytes()));
    let mut pairs = Vec::new();
    for row in table::all() {
        let is_wanted = |name: &&str| match row.is_hidden {
            true => patterns.iter().any(|pattern| pattern == name.as_bytes()),
            false => wanted(name),
        };
        for name in row.names().filter(is_wanted) {
            pairs.push((name, row.value(config).to_bytes()));
        }
    }
    pairs
}

/// The configuration with every pair set: names and values by turns. `is_local`: the client is on
/// this machine.
pub fn set<A: AsRef<[u8]>>(
    config: &Config,
    pairs: &[A],
    is_local: bool,
) -> Result<Config, SetError> {
    if pairs.is_empty() || !pairs.len().is_multiple_of(2) {
        return Err(SetError::Odd);
    }
    let pairs: Vec<_> = pairs.chunks(2).map(|pair| (pair[0].as_ref(), pair[1].as_ref())).collect();
    let mut rows: Vec<(&Row, &'static str)> = Vec::with_capacity(pairs.len());
    for (name, _) in &pairs {
        let found = changeable(name, config, is_local)?;
        if rows.iter().any(|(_, earlier)| *earlier == found.1) {
            return Err(failed(name, "duplicate parameter"));
        }
        rows.push(found);
    }
    let mut changed = config.clone();
    for ((row, name), (_, value)) in rows.iter().zip(&pairs) {
        assign(row, &mut changed, value).map_err(|reason| failed(name.as_bytes(), &reason))?;
    }
    Ok(changed)
}

/// The row that `name` means, if CONFIG SET may change it.
fn changeable(
    name: &[u8],
    config: &Config,
    is_local: bool,
) -> Result<(&'static Row, &'static str), SetError> {
    let may_change_protected = config.enable_protected_configs.includes(is_local);
    match Row::find(name) {
        Some((row, _)) if row.change == Change::Protected && !may_change_protected => {
            Err(failed(name, "can't set protected config"))
        }
        Some((row, _)) if row.change == Change::AtStart => {
            Err(failed(name, "can't set immutable config"))
        }
        Some(found) => Ok(found),
        None if Unsupported::find(name).is_some() => Err(failed(name, "not supported yet")),
        None => Err(SetError::Unknown(name.to_vec())),
    }
}

fn assign(row: &Row, config: &mut Config, value: &[u8]) -> Result<(), String> {
    row.assign(config, row.parse(&[value.to_vec()])?);
    Ok(())
}

fn failed(name: &[u8], reason: &str) -> SetError {
    SetError::Failed { name: name.to_vec(), reason: reason.into() }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Patterns of these tests end in `*` or are whole names.
    fn matches(pattern: &[u8], name: &[u8]) -> bool {
        match pattern.strip_suffix(b"*") {
            Some(start) => name.starts_with(start),
            None => pattern == name,
        }
    }

    fn check_get(config: &Config, patterns: &[&str], expect: &[(&str, &str)]) {
        let pairs = get(config, patterns, matches);
        let expect: Vec<_> = expect.iter().map(|&(n, v)| (n, v.as_bytes().to_vec())).collect();
        assert_eq!(pairs, expect, "{patterns:?}");
    }

    /// `expect` is the pairs that CONFIG GET then reports for the names set, or the error.
    fn check_set(pairs: &[&str], expect: Result<&[(&str, &str)], &str>) {
        match (set(&Config::of_table(), pairs, true), expect) {
            (Ok(config), Ok(expect)) => {
                let names: Vec<_> = pairs.iter().step_by(2).copied().collect();
                check_get(&config, &names, expect);
            }
            (Err(error), Err(expect)) => {
                assert_eq!(String::from_utf8(error.message()).unwrap(), expect, "{pairs:?}");
            }
            (result, _) => panic!("{pairs:?}: {result:?}"),
        }
    }

    #[test]
    fn get_answers_what_clients_ask_at_connect() {
        let config = Config::of_table();
        check_get(
            &config,
            &["maxmemory", "maxmemory-p*"],
            &[("maxmemory", "0"), ("maxmemory-policy", "noeviction")],
        );
        check_get(&config, &["save"], &[("save", "3600 1 300 100 60 10000")]);
        check_get(&config, &["appendonly"], &[("appendonly", "no")]);
        check_get(&config, &["databases", "TIMEOUT"], &[("timeout", "0"), ("databases", "16")]);
        check_get(&config, &["timeout", "time*", "Timeout"], &[("timeout", "0")]);
        check_get(&config, &["proto-max-bulk-len"], &[("proto-max-bulk-len", "536870912")]);
        check_get(&config, &["nosuch", "hash-seed"], &[]);
        check_get(
            &config,
            &["hash-max-*"],
            &[
                ("hash-max-listpack-entries", "512"),
                ("hash-max-ziplist-entries", "512"),
                ("hash-max-listpack-value", "64"),
                ("hash-max-ziplist-value", "64"),
            ],
        );
        let shown = table::all().filter(|row| !row.is_hidden).flat_map(Row::names);
        assert_eq!(get(&config, &["*"], matches).len(), shown.count());
    }

    #[test]
    fn options_for_tests_are_shown_by_their_exact_names() {
        let config = set(&Config::of_table(), &["key-load-delay", "-10"], true).unwrap();
        check_get(&config, &["key-load-*"], &[]);
        check_get(&config, &["KEY-load-delay"], &[("key-load-delay", "-10")]);
    }

    #[test]
    fn options_without_effect_are_kept() {
        check_set(
            &["repl-timeout", "5", "masterauth", "secret"],
            Ok(&[("repl-timeout", "5"), ("masterauth", "secret")]),
        );
        for name in
            ["sanitize-dump-payload", "lazyfree-lazy-user-del", "dual-channel-replication-enabled"]
        {
            for value in ["yes", "no"] {
                check_set(&[name, &value.to_uppercase()], Ok(&[(name, value)]));
            }
        }
        check_get(
            &Config::of_table(),
            &["replicaof", "slaveof"],
            &[("replicaof", ""), ("slaveof", "")],
        );
    }

    #[test]
    fn set_changes_all_or_nothing() {
        check_set(&["timeout", "5", "HZ", "10000"], Ok(&[("timeout", "5"), ("hz", "500")]));
        check_set(&["protected-mode", "NO"], Ok(&[("protected-mode", "no")]));
        check_set(&["proto-max-bulk-len", "1gb"], Ok(&[("proto-max-bulk-len", "1073741824")]));
        check_set(&["hash-max-ziplist-value", "1kb"], Ok(&[("hash-max-ziplist-value", "1024")]));
        check_set(&["maxmemory", "0", "save", ""], Ok(&[("maxmemory", "0"), ("save", "")]));
        check_set(
            &["hash-max-listpack-entries", "10", "hash-max-ziplist-entries", "11"],
            Ok(&[("hash-max-listpack-entries", "11"), ("hash-max-ziplist-entries", "11")]),
        );
    }

    #[test]
    fn set_refuses_with_the_texts_of_redis() {
        let unknown = "ERR Unknown option or number of arguments for CONFIG SET - 'nosuch'";
        check_set(&["nosuch", "1"], Err(unknown));
        check_set(&["timeout", "1", "nosuch", "3", "databases", "3"], Err(unknown));
        check_set(&["timeout", "1", "hz"], Err("ERR syntax error"));
        let cases: &[(&[&str], &str, &str)] = &[
            (&["databases", "3", "nosuch", "3"], "databases", "can't set immutable config"),
            (&["Timeout", "abc"], "timeout", "argument couldn't be parsed into an integer"),
            (&["timeout", "7", "hz", "x"], "hz", "argument couldn't be parsed into an integer"),
            (&["timeout", "-1"], "timeout", "argument must be between 0 and 2147483647 inclusive"),
            (&["timeout", "5", "Timeout", "6"], "Timeout", "duplicate parameter"),
            (
                &["timeout", "3", "tcp-backlog", "4", "tcp-backlog", "5"],
                "tcp-backlog",
                "can't set immutable config",
            ),
            (&["port", "70000"], "port", "argument must be between 0 and 65535 inclusive"),
            (
                &["bind", "1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17"],
                "bind",
                "Too many bind addresses specified.",
            ),
            (&["maxmemory", "abc"], "maxmemory", "argument must be a memory value"),
            (&["save", "900"], "save", "Invalid save parameters"),
            (&["hash-seed", "1"], "hash-seed", "not supported yet"),
            (
                &["loglevel", "foo"],
                "loglevel",
                "argument(s) must be one of the following: debug, verbose, notice, warning, nothing",
            ),
            (&["timeout", "7", "dir", "/"], "dir", "can't set protected config"),
        ];
        for (pairs, name, reason) in cases {
            let text =
                format!("ERR CONFIG SET failed (possibly related to argument '{name}') - {reason}");
            check_set(pairs, Err(&text));
        }
    }
}
