//! What the servers are asked: columns, keys, prefixes and limits, as EXPLAIN shows.

use crate::support::{TABLES, of_tables, rows, start_filled};

/// The line of a plan that says what is asked.
fn scan(server: &kvasir_harness::server::Server, query: &str) -> String {
    let plan = of_tables(server, &format!("EXPLAIN FORMAT INDENT {query}")).join("\n");
    let line = plan.lines().find(|line| line.contains("KvasirScan"));
    // As CSV has it, in quotes.
    let line = line.unwrap_or_else(|| panic!("{plan}")).replace("\"\"", "\x00");
    line.replace('"', "").replace('\0', "\"").trim().to_string()
}

#[test]
fn what_is_asked_is_no_more_than_what_is_wanted() {
    let server = start_filled();
    for (query, asked) in [
        ("SELECT name FROM users", "match=user:*, type=hash, columns=[name utf8]"),
        ("SELECT count(*) FROM users", "match=user:*, type=hash, columns=[__slot int64]"),
        (
            "SELECT age FROM users WHERE __key LIKE 'user:1%' LIMIT 1",
            "match=user:1*, type=hash, columns=[age int64], limit=1",
        ),
        (
            "SELECT age FROM users WHERE starts_with(__key, 'user:1')",
            "match=user:1*, type=hash, columns=[age int64]",
        ),
        (
            "SELECT age FROM users WHERE __key = 'user:3'",
            "match=user:*, keys=[\"user:3\"], slots=2648-2648, type=hash, columns=[age int64]",
        ),
        (
            "SELECT age FROM users WHERE __key IN ('user:3', 'user:4', 'user:5', 'user:6', 'no')",
            "match=user:*, keys=[\"user:3\", \"user:4\", \"user:5\", \"user:6\"], \
             slots=2648-15039, type=hash, columns=[age int64]",
        ),
        // What EXPORT has no words for stays with the plan, and so does the limit then.
        (
            "SELECT name FROM users WHERE age > 25 LIMIT 1",
            "match=user:*, type=hash, columns=[name utf8, age int64]",
        ),
        (
            "SELECT name FROM users WHERE __key LIKE 'user:%0' LIMIT 1",
            "match=user:*, type=hash, columns=[__key utf8, name utf8]",
        ),
    ] {
        let found = scan(&server, query);
        assert_eq!(found, format!("KvasirScan: nodes=1, {asked}"), "{query}");
    }
}

#[test]
fn what_is_pushed_down_is_what_is_answered() {
    let server = start_filled();
    for (filter, count) in [
        ("__key LIKE 'user:1%'", 2),
        ("__key LIKE 'user:_'", 9),
        ("__key LIKE '%1%'", 2),
        ("__key NOT LIKE 'user:1%'", 8),
        ("__key LIKE 'order:%'", 0),
        ("__key = 'user:7'", 1),
        ("'user:7' = __key", 1),
        ("__key = 'order:7'", 0),
        ("__key IN ('user:1', 'user:2', 'user:2', 'x')", 2),
        ("__key = 'user:1' AND __key LIKE 'user:2%'", 0),
        ("__key = 'user:1' OR age = 22", 2),
        ("__key NOT IN ('user:1')", 9),
        ("__key LIKE 'user:%' AND __key LIKE 'user:1%' AND age > 25", 1),
    ] {
        let query = format!("SELECT count(*) AS n FROM users WHERE {filter}");
        assert_eq!(of_tables(&server, &query), ["n", &count.to_string()], "{filter}");
    }
}

#[test]
fn a_key_is_told_from_a_pattern() {
    let server = start_filled();
    crate::support::do_all(&server, &["HSET user:* name star", "HSET user:[1] name bracket"]);
    let query =
        "SELECT name FROM users WHERE __key LIKE 'user:*%' OR __key = 'user:[1]' ORDER BY 1";
    assert_eq!(of_tables(&server, query), ["name", "bracket", "star"]);
    let query = "SELECT name FROM users WHERE __key LIKE 'user:*%'";
    assert_eq!(of_tables(&server, query), ["name", "star"]);
    let table = "CREATE EXTERNAL TABLE one (name TEXT) STORED AS KVASIR LOCATION 'user:\\*'";
    assert_eq!(rows(&server, &format!("{TABLES} {table}; SELECT name FROM one")), ["name", "star"]);
}
