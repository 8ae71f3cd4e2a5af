//! What a text of a stranger may not do, and what is wrong with data.

use crate::support::{TABLES, do_all, failure, rows, run, start, start_filled};

const FILES: &str = "only done with --allow-files";

#[test]
fn files_and_urls_are_refused() {
    let server = start_filled();
    for text in [
        "COPY (SELECT 1) TO '/tmp/kvasir-sql-copied.csv'",
        "EXPLAIN ANALYZE COPY (SELECT 1) TO '/tmp/kvasir-sql-copied.csv' STORED AS CSV",
        "CREATE EXTERNAL TABLE t STORED AS CSV LOCATION '/etc/passwd'",
        "CREATE EXTERNAL TABLE t STORED AS PARQUET LOCATION 'http://127.0.0.1:1/x'",
        "CREATE EXTERNAL TABLE t (a TEXT) STORED AS JSON LOCATION 'file:///etc/passwd'",
    ] {
        let why = failure(&server, text);
        assert!(why.contains(FILES), "{text}: {why}");
    }
    for (text, reason) in [
        ("SELECT * FROM '/etc/passwd'", "not found"),
        ("SELECT * FROM \"file:///etc/passwd\"", "no key matches"),
        ("SET datafusion.runtime.temp_directory = '/tmp'", "is not set by a statement"),
        ("SET datafusion.runtime.memory_limit = '1000G'", "is not set by a statement"),
        ("SET datafusion.catalog.location = '/etc'", "is not set by a statement"),
        ("CREATE DATABASE d", "not supported"),
        ("CREATE SCHEMA s", "not supported"),
        ("TRUNCATE TABLE users", "not supported"),
        ("UPDATE users SET __key = 'user:9'", "says which key it is"),
        ("UPDATE users SET __slot = 9", "says which key it is"),
        ("UPDATE users SET nothing = 9", "nothing"),
    ] {
        let why = failure(&server, &format!("{TABLES} {text}"));
        assert!(why.to_lowercase().contains(reason), "{text}: {why}");
    }
    assert!(!std::path::Path::new("/tmp/kvasir-sql-copied.csv").exists());
}

#[test]
fn files_are_read_where_that_is_allowed() {
    let server = start(&[]);
    let directory = kvasir_harness::directory::Directory::new().expect("a folder");
    let file = directory.path().join("rows.csv");
    std::fs::write(&file, "a,b\n1,x\n2,y\n").expect("written");
    let query = format!("SELECT sum(a) AS a FROM '{}'", file.display());
    let output = run(server.port(), &["--allow-files", "--format", "csv", "-c", &query]);
    assert_eq!(String::from_utf8_lossy(&output.stdout), "a\n3\n");
}

#[test]
fn what_does_not_fit_is_told_or_null() {
    let server = start(&[]);
    do_all(&server, &["HSET h:1 n 1", "HSET h:2 n many", "SET h:3 x", "ZADD z 1 a"]);
    let table = "CREATE EXTERNAL TABLE h (n BIGINT) STORED AS KVASIR LOCATION 'h:*'";
    let why = failure(&server, &format!("{table}; SELECT sum(n) FROM h"));
    assert!(why.contains("'many' does not fit column 'n' of type int64, at key 'h:2'"), "{why}");
    let with_nulls = format!("{table} OPTIONS (misfits 'null'); SELECT sum(n) AS s FROM h");
    assert_eq!(rows(&server, &with_nulls), ["s", "1"]);
    let output = run(
        server.port(),
        &["--nulls", "--format", "csv", "-c", &format!("{table}; SELECT count(*) AS c FROM h")],
    );
    // A key of another type is none of the table.
    assert_eq!(String::from_utf8_lossy(&output.stdout), "c\n2\n");
    for (text, reason) in [
        ("CREATE EXTERNAL TABLE t (a TIME) STORED AS KVASIR LOCATION 'h:*'", "cannot be Time64"),
        (
            "CREATE EXTERNAL TABLE t STORED AS KVASIR LOCATION 'h:*' OPTIONS (type 'tree')",
            "there is no type 'tree'",
        ),
        (
            "CREATE EXTERNAL TABLE t STORED AS KVASIR LOCATION 'h:*' OPTIONS (speed 'high')",
            "no option 'speed'",
        ),
        ("CREATE EXTERNAL TABLE t STORED AS KVASIR LOCATION 'none:*'", "no key matches none:*"),
        ("SELECT nothing FROM \"h:*\"", "nothing"),
        ("SELEC 1", "found: SELEC"),
    ] {
        let why = failure(&server, text);
        assert!(why.contains(reason), "{text}: {why}");
    }
}

/// To leave them out would be to answer something else.
#[test]
fn words_that_would_go_unheeded_are_refused() {
    let server = start_filled();
    for (text, words) in [
        ("SELECT name FROM users TABLESAMPLE SYSTEM (10)", "TABLESAMPLE"),
        ("SELECT name FROM users TABLESAMPLE BERNOULLI (10) REPEATABLE (1)", "TABLESAMPLE"),
        ("SELECT count(*) FROM (SELECT 1) AS t TABLESAMPLE SYSTEM (10)", "TABLESAMPLE"),
        ("SELECT 1 WHERE 1 IN (SELECT age FROM users TABLESAMPLE SYSTEM (1))", "TABLESAMPLE"),
        ("INSERT INTO users SELECT * FROM users TABLESAMPLE SYSTEM (1)", "TABLESAMPLE"),
        ("EXPLAIN SELECT name FROM users TABLESAMPLE SYSTEM (10)", "TABLESAMPLE"),
        ("SELECT name FROM users FOR UPDATE", "FOR UPDATE"),
        ("SELECT city, count(*) FROM users GROUP BY city WITH ROLLUP", "ROLLUP"),
        ("SELECT name FROM users ORDER BY age WITH FILL", "WITH FILL"),
        ("SELECT * FROM generate_series(1, 3) WITH ORDINALITY", "WITH ORDINALITY"),
        ("SELECT name FROM users FETCH FIRST 1 ROW ONLY", "FETCH"),
    ] {
        let why = failure(&server, &format!("{TABLES} {text}"));
        assert!(why.contains(words), "{text}: {why}");
    }
}

#[test]
fn a_server_that_is_not_there_is_told() {
    let port = kvasir_harness::server::free_port().expect("a port");
    let output = run(port, &["-c", "SELECT 1"]);
    let why = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(!output.status.success() && why.contains("cannot be asked"), "{why}");
}
