//! The jobs that Spark's RDD is shown with, as docs/sql.md has them: each text there is run here.

use std::path::Path;

use kvasir_harness::workspace::root;

use crate::support::{TABLES, do_all, rows, run, start, start_filled};

/// The SQL of a part of the page.
fn text(title: &str) -> String {
    let page = std::fs::read_to_string(root().join(Path::new("docs/sql.md"))).expect("a page");
    let part = page.split(&format!("### {title}\n")).nth(1).expect("it has the part");
    let block = part.split("```sql\n").nth(1).expect("it has SQL");
    block.split("```").next().expect("it ends").to_string()
}

/// Every other statement of the page, by itself, over users with or without a city.
#[test]
fn every_statement_of_the_page_runs() {
    let server = start_filled();
    do_all(&server, &["SADD out:1 2 3", "SADD out:2 3", "HSET adjacency 1 2,3 2 3"]);
    let page = std::fs::read_to_string(root().join(Path::new("docs/sql.md"))).expect("a page");
    let page = page.split("## RDD's jobs").next().expect("it begins");
    let is_statement = |line: &&str| line.starts_with("    ") && line.trim_end().ends_with(';');
    let statements: Vec<_> = page.lines().filter(is_statement).map(str::trim).collect();
    assert!(statements.len() > 12, "{statements:?}");
    let with_city = TABLES.to_string();
    let without = TABLES.replace(", city TEXT", "");
    for statement in statements {
        let begins = if statement.starts_with("CREATE EXTERNAL") {
            vec![String::new()]
        } else {
            vec![without.clone(), with_city.clone()]
        };
        let run = |begin: &String| {
            let text = format!("{begin} {statement}");
            run(server.port(), &["--format", "csv", "-c", &text])
        };
        let outputs: Vec<_> = begins.iter().map(run).collect();
        let does_run = outputs.iter().any(|output| output.status.success());
        assert!(does_run, "{statement}: {outputs:?}");
        // Who has no city would be in the way of a table of cities.
        do_all(&server, &["DEL user:11"]);
    }
}

#[test]
fn word_count() {
    let server = start(&[]);
    let mut client = server.client().expect("it serves");
    for (key, value) in [("line:1", "the cat and the dog"), ("line:2", "the end")] {
        client.call(&[b"SET", key.as_bytes(), value.as_bytes()]).expect("it is set");
    }
    let expected = ["word,n", "the,3", "and,1", "cat,1", "dog,1", "end,1"];
    assert_eq!(rows(&server, &text("Word count")), expected);
}

#[test]
fn log_analysis() {
    let server = start(&[]);
    do_all(
        &server,
        &[
            "XADD log:web 1-1 at 2026-07-01T10:00:00Z path /a status 200 bytes 100",
            "XADD log:web 2-1 at 2026-07-01T10:59:59Z path /b status 500 bytes 20",
            "XADD log:api 3-1 at 2026-07-01T11:00:00Z path /a status 404 bytes 30",
            "XADD log:api 4-1 at 2026-07-01T11:30:00Z path /a status 200 bytes 300",
        ],
    );
    let expected = [
        "hour,requests,errors,bytes",
        "2026-07-01T10:00:00Z,2,1,120",
        "2026-07-01T11:00:00Z,2,1,330",
        "path,requests",
        "/a,3",
        "/b,1",
    ];
    assert_eq!(rows(&server, &text("Log analysis")), expected);
}

#[test]
fn page_rank() {
    let server = start(&[]);
    do_all(&server, &["SADD out:1 2 3", "SADD out:2 3", "SADD out:3 1", "SADD out:4 1 5"]);
    let found = rows(&server, &text("PageRank"));
    let asked = "SELECT node, rank FROM pagerank('out:*', 'DEFINITION A') ORDER BY node";
    let expected = rows(&server, asked);
    // 4 receives nothing and leaves, and 5 with it.
    assert_eq!((found.len(), expected.len()), (4, 4), "{found:?}");
    for (found, expected) in found.iter().zip(&expected).skip(1) {
        let parse = |line: &str| {
            let (node, rank) = line.split_once(',').expect("two columns");
            (node.to_string(), rank.parse::<f64>().expect("a number"))
        };
        let ((node, rank), (same, exact)) = (parse(found), parse(expected));
        assert!(node == same && (rank - exact).abs() < 1e-9, "{found} {expected}");
    }
}
