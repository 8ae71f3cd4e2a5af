//! COMMAND: what is derived from the command table.

use kvasir_resp::value::Value;

use crate::check::{check, check_newer};
use crate::harness::{Client, Server, each_backend};

#[test]
fn keys_of_calls() {
    check(&[
        (
            "COMMAND GETKEYS SET k v; COMMAND GETKEYS MSET a 1 b 2; COMMAND GETKEYS GET k",
            "[$k]; [$a $b]; [$k]",
        ),
        (
            "COMMAND GETKEYS NOSUCH k; COMMAND GETKEYS PING x; COMMAND GETKEYS GET a b; \
             COMMAND GETKEYS MEMORY USAGE k",
            "-ERR Invalid command specified; -ERR The command has no key arguments; \
             -ERR Invalid number of arguments specified for command; [$k]",
        ),
        (
            "COMMAND GETKEYS ZUNIONSTORE d 0 a; COMMAND GETKEYS SINTERCARD 0 a; \
             COMMAND GETKEYS ZUNIONSTORE d 1 a; COMMAND GETKEYS EVAL x 0 a",
            "-ERR Invalid arguments specified for command; \
             -ERR Invalid arguments specified for command; [$d $a]; []",
        ),
        (
            "COMMAND GETKEYSANDFLAGS SET k v; COMMAND GETKEYSANDFLAGS SET k v GET; \
             COMMAND GETKEYSANDFLAGS GET k",
            "[[$k [+OW +update]]]; [[$k [+RW +access +update]]]; [[$k [+RO +access]]]",
        ),
    ]);
    check_newer(&[(
        "COMMAND GETKEYS GET; COMMAND GETKEYS DBSIZE; COMMAND GETKEYS",
        "-ERR Invalid number of arguments specified for command; \
         -ERR The command has no key arguments; \
         -ERR wrong number of arguments for 'command|getkeys' command",
    )]);
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

/// Families of Kvasir's own begin with this.
const OWN: &[&str] = &["export", "graph.", "hotkeys"];

/// Commands whose row in COMMAND INFO is neither that of Redis 7.0 nor that of Valkey 9.1, and why.
const OTHER_ROWS: &[(&str, &str)] = &[
    ("client|durability", "is Kvasir's own"),
    ("client|no-touch", "Redis has it since 7.2, and Valkey's categories are its own"),
    ("client|ring", "is Kvasir's own"),
    ("client|reply", "is no part of a transaction, as in Valkey, whose categories are its own"),
    ("client|trace", "is Kvasir's own"),
    ("delex", "Redis has it since 8.4"),
    ("digest", "Redis has it since 8.4"),
    ("memory|report", "is Kvasir's own"),
    ("client|setinfo", "Redis has it since 7.2, and Valkey's categories are its own"),
    ("xackdel", "Redis has it since 8.2"),
    ("xdelex", "Redis has it since 8.2"),
];

/// Commands whose facts in COMMAND DOCS are neither those of Redis 7.0 nor those of Valkey 9.1.
const OTHER_DOCS: &[(&str, &str)] = &[
    ("client", "options that came after 7.0, and no subcommand that does nothing here"),
    ("cluster", "has MYSHARDID and SLOT-STATS, as Valkey, and of the others what Redis 7.0 tells"),
    ("delex", "Redis has it since 8.4"),
    ("digest", "Redis has it since 8.4"),
    ("memory", "has REPORT, and of the others what the peers tell"),
    ("script", "has SHOW, as Valkey, and of the others what Redis 7.0 tells"),
    ("set", "has IFEQ, as Valkey, whose argument carries a summary of its own, and what 8.4 has"),
    ("xackdel", "Redis has it since 8.2"),
    ("xadd", "has KEEPREF, DELREF and ACKED, as Redis 8.2"),
    ("xdelex", "Redis has it since 8.2"),
    ("xtrim", "has KEEPREF, DELREF and ACKED, as Redis 8.2"),
    ("zscan", "has NOSCORES, as Valkey, which documents it otherwise"),
    ("xinfo", "tells what changed in 7.2"),
];

/// Every command that a peer knows has the row of Redis 7.0 in COMMAND INFO, or that of Valkey 9.1
/// where Redis has changed since, or has no such command.
#[test]
fn rows_are_those_of_the_peers() {
    let names = |client: &mut Client| texts(&client.ask("COMMAND LIST"));
    compare_with_peers("COMMAND INFO", names, row, OTHER_ROWS);
}

/// COMMAND DOCS has the peers' facts; the words are ours.
#[test]
fn docs_have_the_facts_of_the_peers() {
    let names = |client: &mut Client| {
        let names = texts(&client.ask("COMMAND LIST"));
        names.into_iter().filter(|name| !name.contains('|')).collect()
    };
    compare_with_peers("COMMAND DOCS", names, facts, OTHER_DOCS);
}

/// Asks all servers about each of our commands and collects every one that agrees with no peer.
fn compare_with_peers(
    question: &str,
    names: fn(&mut Client) -> Vec<String>,
    facts: fn(&Value) -> Option<Vec<String>>,
    exceptions: &[(&str, &str)],
) {
    let (Some(redis), Some(valkey)) = (Server::redis(&[]), Server::valkey(&[])) else { return };
    let ours = Server::kvasir("epoll", &[]);
    let [mut ours, mut redis, mut valkey] = [&ours, &redis, &valkey].map(|server| {
        let mut client = server.connect();
        client.ask("HELLO 3");
        client
    });
    let mut wrong = Vec::new();
    for name in names(&mut ours) {
        let call = format!("{question} {name}");
        let is_exception = OWN.iter().any(|family| name.starts_with(family))
            || exceptions.iter().any(|(exception, _)| *exception == name);
        let own = facts(&ours.ask(&call)).expect("our own command");
        let theirs = [&mut redis, &mut valkey].map(|client| facts(&client.ask(&call)));
        let is_alike = theirs.iter().flatten().any(|facts| *facts == own);
        if is_alike == is_exception {
            wrong.push(explain(&name, &own, theirs.into_iter().flatten().next()));
        }
    }
    assert!(wrong.is_empty(), "{question}:\n{}", wrong.join("\n"));
}

/// What only one side says.
fn explain(name: &str, own: &[String], theirs: Option<Vec<String>>) -> String {
    let Some(theirs) = theirs else { return format!("{name}: no peer has it") };
    let only = |one: &[String], other: &[String]| -> String {
        one.iter()
            .filter(|fact| !other.contains(fact))
            .map(|fact| format!("\n    {fact}"))
            .collect()
    };
    let (ours, theirs) = (only(own, &theirs), only(&theirs, own));
    match ours.is_empty() && theirs.is_empty() {
        true => format!("{name}: alike, or in another order; if alike, it is no exception"),
        false => format!("{name}\n  only ours:{ours}\n  only the peer's:{theirs}"),
    }
}

/// The facts of one command in COMMAND DOCS, its subcommands included, one a line; of prose only
/// that it is there.
fn facts(reply: &Value) -> Option<Vec<String>> {
    let (name, docs) = pairs(reply).first()?;
    let mut facts = Vec::new();
    collect_facts(&text(name), docs, &mut facts);
    Some(facts)
}

fn collect_facts(path: &str, docs: &Value, facts: &mut Vec<String>) {
    for (field, value) in pairs(docs) {
        let field = text(field);
        match field.as_str() {
            // How redis-cli shows an argument, which 7.0 does not say.
            "display_text" => {}
            "summary" | "complexity" | "replaced_by" => facts.push(format!("{path} {field}")),
            "history" => {
                let versions = items(value).iter().map(|pair| text(&items(pair)[0]));
                facts.push(format!("{path} {field} {}", versions.collect::<Vec<_>>().join(" ")));
            }
            "arguments" => {
                for (index, argument) in items(value).iter().enumerate() {
                    collect_facts(&format!("{path} {index}"), argument, facts);
                }
            }
            "subcommands" => {
                let mut subs: Vec<_> = pairs(value).to_vec();
                subs.sort_by_key(|(name, _)| text(name));
                subs.iter().for_each(|(name, docs)| collect_facts(&text(name), docs, facts));
            }
            _ => facts.push(format!("{path} {field} {}", sorted(value))),
        }
    }
}

/// The fields of COMMAND INFO, one a line. The subcommands are asked for by their own names.
fn row(reply: &Value) -> Option<Vec<String>> {
    const FIELDS: [&str; 9] =
        ["name", "arity", "flags", "first", "last", "step", "categories", "tips", "keys"];
    let fields = reply.as_array()?[0].as_array()?;
    assert_eq!(fields.len(), FIELDS.len() + 1);
    let line = |(name, value): (&&str, &Value)| match *name {
        "keys" => items(value).iter().map(|key| format!("key {}", key_spec(key))).collect(),
        _ => vec![format!("{name} {}", sorted(value))],
    };
    Some(FIELDS.iter().zip(fields).flat_map(line).collect())
}

/// A key specification; notes are prose.
fn key_spec(spec: &Value) -> String {
    let facts = pairs(spec).iter().map(|(name, value)| match text(name).as_str() {
        "notes" => "notes".to_string(),
        name => format!("{name} {}", sorted(value)),
    });
    facts.collect::<Vec<_>>().join(", ")
}

/// As text; the order of a set is no fact.
fn sorted(value: &Value) -> String {
    let Value::Set(items) = value else { return crate::check::show(value) };
    let mut items: Vec<String> = items.iter().map(crate::check::show).collect();
    items.sort();
    items.join(" ")
}

fn texts(reply: &Value) -> Vec<String> {
    items(reply).iter().map(text).collect()
}

fn text(value: &Value) -> String {
    String::from_utf8_lossy(value.as_bytes().unwrap()).into_owned()
}

/// The elements of an array or a set.
fn items(value: &Value) -> &[Value] {
    value.as_array().unwrap()
}

fn pairs(value: &Value) -> &[(Value, Value)] {
    let Value::Map(pairs) = value else { panic!("no map: {value:?}") };
    pairs
}
