//! COMMAND: what is derived from the command table.

use kvasir_resp::value::Value;

use crate::check::check;
use crate::harness::{Server, each_backend};

#[test]
fn keys_of_calls() {
    check(&[
        (
            "COMMAND GETKEYS SET k v; COMMAND GETKEYS MSET a 1 b 2; COMMAND GETKEYS GET k",
            "[$k]; [$a $b]; [$k]",
        ),
        (
            "COMMAND GETKEYS NOSUCH k; COMMAND GETKEYS PING x; COMMAND GETKEYS GET a b; \
             COMMAND GETKEYS GET; COMMAND GETKEYS MEMORY USAGE k",
            "-ERR Invalid command specified; -ERR The command has no key arguments; \
             -ERR Invalid number of arguments specified for command; \
             -ERR wrong number of arguments for 'command|getkeys' command; [$k]",
        ),
        (
            "COMMAND GETKEYSANDFLAGS SET k v; COMMAND GETKEYSANDFLAGS SET k v GET; \
             COMMAND GETKEYSANDFLAGS GET k",
            "[[$k [+OW +update]]]; [[$k [+RW +access +update]]]; [[$k [+RO +access]]]",
        ),
    ]);
}

#[test]
fn lists() {
    check(&[
        (
            "COMMAND LIST FILTERBY; COMMAND LIST x; COMMAND LIST FILTERBY x y; \
             COMMAND LIST FILTERBY PATTERN nosuch*; COMMAND LIST FILTERBY MODULE x; \
             COMMAND LIST FILTERBY ACLCAT nosuch; COMMAND LIST FILTERBY PATTERN pin?; \
             COMMAND LIST FILTERBY PATTERN ECH*",
            "-ERR syntax error; -ERR syntax error; -ERR syntax error; []; []; []; [$ping]; [$echo]",
        ),
        ("COMMAND INFO nosuch; COMMAND DOCS nosuch", "[_]; []"),
    ]);
}

#[test]
fn counts_agree() {
    each_backend(&[], |server| {
        let mut client = server.connect();
        let count = client.ask("COMMAND COUNT").as_integer().unwrap() as usize;
        assert_eq!(client.ask("COMMAND").as_array().unwrap().len(), count);
        assert_eq!(client.ask("COMMAND INFO").as_array().unwrap().len(), count);
        assert_eq!(client.ask("COMMAND DOCS").as_array().unwrap().len(), 2 * count);
        let names = client.ask("COMMAND LIST");
        let names = names.as_array().unwrap();
        let is_top = |name: &&Value| !name.as_bytes().unwrap().contains(&b'|');
        assert_eq!(names.iter().filter(is_top).count(), count);
    });
}

/// What the oracle has otherwise, or later than 7.0.
const DIFFERENT: &[&str] = &["client|no-touch", "client|setinfo"];

/// Of the families that stand in the server; data commands are checked where they stand.
const FAMILIES: [&str; 13] = [
    "ping", "echo", "select", "reset", "quit", "hello", "auth", "client", "command", "memory",
    "info", "lolwut", "time",
];

#[test]
fn rows_are_those_of_redis() {
    let Some(oracle) = Server::redis(&[]) else { return };
    let ours = Server::kvasir("epoll", &[]);
    let (mut ours, mut theirs) = (ours.connect(), oracle.connect());
    [&mut ours, &mut theirs].into_iter().for_each(|client| drop(client.ask("HELLO 3")));
    let names = ours.ask("COMMAND LIST");
    let Value::Set(names) = names else { panic!("no set: {names:?}") };
    for name in &names {
        let name = std::str::from_utf8(name.as_bytes().unwrap()).unwrap();
        let family = name.split('|').next().unwrap();
        if DIFFERENT.contains(&name) || !FAMILIES.contains(&family) {
            continue;
        }
        let call = format!("COMMAND INFO {name}");
        let rows = [ours.ask(&call), theirs.ask(&call)].map(|reply| row(&reply));
        assert_eq!(rows[0], rows[1], "{name}");
    }
}

/// DOCS has the oracle's facts; the words are ours.
#[test]
fn docs_have_the_facts_of_redis() {
    let Some(oracle) = Server::redis(&[]) else { return };
    let ours = Server::kvasir("epoll", &[]);
    let (mut ours, mut theirs) = (ours.connect(), oracle.connect());
    // Options that came after 7.0, and facts that the table has no place for.
    let different = ["client", "command"];
    for name in FAMILIES.iter().filter(|name| !different.contains(name)) {
        let call = format!("COMMAND DOCS {name}");
        let docs = [ours.ask(&call), theirs.ask(&call)].map(|reply| facts(&reply));
        assert_eq!(docs[0], docs[1], "{name}");
    }
}

/// Field names, and the values of fields that hold no prose, as text.
fn facts(reply: &Value) -> Vec<String> {
    let docs = reply.as_array().unwrap()[1].as_array().unwrap();
    let prose = ["summary", "complexity", "history", "subcommands"];
    let fields = docs.chunks(2).map(|pair| {
        let name = String::from_utf8_lossy(pair[0].as_bytes().unwrap()).into_owned();
        let is_prose = prose.contains(&name.as_str());
        if is_prose { name } else { format!("{name} {}", crate::check::show(&pair[1])) }
    });
    fields.collect()
}

/// The ten fields, the subcommands left out: the oracle's order is that of a hash table.
fn row(reply: &Value) -> Vec<Value> {
    let fields = reply.as_array().unwrap()[0].as_array().unwrap();
    assert_eq!(fields.len(), 10);
    fields[..9].to_vec()
}
