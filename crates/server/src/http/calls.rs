//! Which calls the console may make. What the user may do the ACL says, as for anybody; this keeps
//! those out that are no question with one answer, and, unless somebody wants to write, those that
//! change anything.

use kvasir_keyspace::spec::Flags;
use kvasir_resp::args::Args;
use kvasir_resp::request::{Limits, Parsed, Parser};
use kvasir_table::Table;

/// Calls of one request.
const CALLS_MAX: usize = 1000;

/// Those that change what the connection is, or do not answer once.
const NEVER: &[&str] = &[
    "auth",
    "client|reply",
    "client|setname",
    "client|trace",
    "client|tracking",
    "discard",
    "exec",
    "hello",
    "monitor",
    "multi",
    "psubscribe",
    "psync",
    "punsubscribe",
    "quit",
    "replconf",
    "reset",
    "script|debug",
    "ssubscribe",
    "subscribe",
    "sunsubscribe",
    "sync",
    "unsubscribe",
    "unwatch",
    "watch",
];

/// Those that only look, of commands that are not about keys.
const LOOKING: &[&str] = &[
    "acl|cat",
    "acl|dryrun",
    "acl|getuser",
    "acl|help",
    "acl|list",
    "acl|log",
    "acl|users",
    "acl|whoami",
    "client|getname",
    "client|help",
    "client|id",
    "client|info",
    "client|list",
    "cluster|countkeysinslot",
    "cluster|getkeysinslot",
    "cluster|info",
    "cluster|keyslot",
    "cluster|links",
    "cluster|myid",
    "cluster|nodes",
    "cluster|shards",
    "cluster|slot-stats",
    "cluster|slots",
    "command",
    "command|count",
    "command|docs",
    "command|getkeys",
    "command|getkeysandflags",
    "command|info",
    "command|list",
    "commandlog|get",
    "commandlog|len",
    "config|get",
    "config|help",
    "echo",
    "export|end",
    "export|next",
    "function|list",
    "function|stats",
    "hotkeys|get",
    "hotkeys|list",
    "hotkeys|slots",
    "info",
    "lastsave",
    "latency|doctor",
    "latency|graph",
    "latency|histogram",
    "latency|history",
    "latency|latest",
    "lolwut",
    "memory|doctor",
    "memory|help",
    "memory|malloc-stats",
    "memory|stats",
    "module|list",
    "ping",
    "pubsub|channels",
    "pubsub|numpat",
    "pubsub|numsub",
    "pubsub|shardchannels",
    "pubsub|shardnumsub",
    "role",
    "script|exists",
    "select",
    "slowlog|get",
    "slowlog|help",
    "slowlog|len",
    "time",
];

/// The names of the calls that these bytes are, or why they are not made.
pub fn check<'t>(table: &'t Table, bytes: &[u8], may_write: bool) -> Result<Vec<&'t str>, String> {
    let (mut parser, mut at, mut names) = (Parser::default(), 0, Vec::new());
    while at < bytes.len() {
        if bytes[at] != b'*' || names.len() == CALLS_MAX {
            return Err("this is not a number of calls that can be made at once".into());
        }
        let (mut spans, mut scratch) = (Vec::new(), Vec::new());
        let parsed = parser.parse(&bytes[at..], &mut spans, &mut scratch, &Limits::default());
        let Ok(Parsed::Request { consumed }) = parsed else {
            return Err("this is no call".into());
        };
        names.push(check_call(table, Args::new(&bytes[at..], &spans), may_write)?);
        at += consumed;
    }
    Ok(names)
}

fn check_call<'t>(table: &'t Table, args: Args<'_>, may_write: bool) -> Result<&'t str, String> {
    // The server words what is unknown.
    let Ok(entry) = table.resolve(args) else { return Ok("an unknown command") };
    let name = &entry.full_name[..];
    if NEVER.contains(&name) {
        return Err(format!("'{name}' can't be called from the console"));
    }
    // Which of these have a second argument that forgets entries, or ends what others began.
    let second = |word: &[u8]| args.get(2).is_some_and(|arg| arg.eq_ignore_ascii_case(word));
    let forgets =
        name == "acl|log" && second(b"reset") || name == "memory|report" && second(b"cancel");
    let flags = entry.spec.flags;
    let looks = flags.contains(Flags::READONLY) && !flags.contains(Flags::WRITE);
    if may_write || (looks || LOOKING.contains(&name)) && !forgets {
        return Ok(name);
    }
    Err(format!("'{name}' may change something: turn writing on first"))
}

#[cfg(test)]
mod tests {
    use kvasir_resp::encode::encode_request;

    use super::*;
    use crate::commands;

    fn check_words(line: &str, may_write: bool) -> Result<usize, String> {
        let table = commands::table();
        let bytes = encode_request(&line.split(' ').collect::<Vec<_>>());
        check(&table, &bytes, may_write).map(|names| names.len())
    }

    #[test]
    fn what_is_listed_is_there() {
        let table = commands::table();
        let is_unknown =
            |name: &&&str| table.entries().iter().all(|entry| entry.full_name != **name);
        let unknown: Vec<_> = NEVER.iter().chain(LOOKING).filter(is_unknown).collect();
        assert_eq!(unknown, [&""; 0]);
        let of_name = |name: &&&str| table.find_full(name.as_bytes());
        let writes = LOOKING.iter().filter_map(|name| of_name(&name));
        assert!(writes.into_iter().all(|entry| !entry.spec.flags.contains(Flags::WRITE)));
    }

    #[test]
    fn calls_that_change_something_have_to_be_wanted() {
        for line in ["GET a", "info all", "ACL LOG", "nosuch", "ZRANGE z 0 1", "CONFIG GET a"] {
            assert_eq!(check_words(line, false), Ok(1), "{line}");
        }
        for line in [
            "SET a b",
            "CONFIG SET a b",
            "ACL LOG RESET",
            "EVAL x 0",
            "SHUTDOWN",
            "FLUSHALL",
            "MEMORY REPORT CANCEL",
            "GRAPH.CANCEL ALL",
        ] {
            assert!(check_words(line, false).is_err(), "{line}");
            assert_eq!(check_words(line, true), Ok(1), "{line}");
        }
        for line in
            ["MONITOR", "AUTH x", "SUBSCRIBE a", "MULTI", "CLIENT REPLY OFF", "CLIENT TRACE OFF"]
        {
            assert!(check_words(line, true).is_err(), "{line}");
        }
    }

    #[test]
    fn what_is_no_call_is_refused() {
        let table = commands::table();
        let two = [encode_request(&["GET", "a"]), encode_request(&["PING"])].concat();
        assert_eq!(check(&table, &two, false), Ok(vec!["get", "ping"]));
        let (half, many) = (b"*1\r\n$4\r\nPIN", two.repeat(CALLS_MAX));
        for bytes in [&b"GET a\r\n"[..], half, b"*x\r\n", b"*0\r\n", b"*-1\r\n", &many] {
            assert!(check(&table, bytes, true).is_err());
        }
        assert_eq!(check(&table, b"", true), Ok(vec![]));
    }
}
