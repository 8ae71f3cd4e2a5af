//! Queries of every kind, each with its exact rows.

use kvasir_harness::directory::Directory;

use crate::support::{do_all, failure, of_tables, rows, run, start, start_filled};

#[test]
fn queries_answer_what_sql_says() {
    let server = start_filled();
    for (query, expected) in [
        (
            "SELECT name, age FROM users WHERE age > 27 ORDER BY age",
            &["name,age", "n8,28", "n9,29", "n10,30"][..],
        ),
        ("SELECT count(*) AS n FROM users", &["n", "10"]),
        ("SELECT count(*) AS n FROM users WHERE name IS NULL", &["n", "0"]),
        (
            "SELECT city, count(*) AS n, avg(age) AS age FROM users GROUP BY city ORDER BY city",
            &["city,n,age", "Bonn,3,25.0", "Oslo,3,26.0", "Rome,4,25.5"],
        ),
        ("SELECT city FROM users GROUP BY city HAVING count(*) > 3", &["city", "Rome"]),
        (
            "SELECT name, sum(amount) AS paid FROM users JOIN orders ON buyer = users.__key \
             GROUP BY name ORDER BY paid DESC LIMIT 2",
            &["name,paid", "n1,75.0", "n5,69.0"],
        ),
        (
            "SELECT name FROM users LEFT JOIN orders ON buyer = users.__key \
             WHERE amount IS NULL ORDER BY name LIMIT 2",
            &["name", "n10", "n6"],
        ),
        (
            "SELECT name, rank() OVER (PARTITION BY city ORDER BY age DESC) AS place \
             FROM users ORDER BY place, name LIMIT 3",
            &["name,place", "n10,1", "n8,1", "n9,1"],
        ),
        (
            "SELECT buyer, sum(amount) OVER (ORDER BY at ROWS 1 PRECEDING) AS two \
             FROM orders ORDER BY at LIMIT 3",
            &["buyer,two", "user:2,1.5", "user:3,4.5", "user:4,7.5"],
        ),
        (
            "SELECT date_trunc('month', at) AS month, count(*) AS n FROM orders \
             WHERE at >= '2026-07-11T00:00:00Z' GROUP BY month",
            &["month,n", "2026-07-01T00:00:00Z,10"],
        ),
        (
            "SELECT name FROM users WHERE __key IN (SELECT buyer FROM orders WHERE amount > 28)",
            &["name", "n1", "n5"],
        ),
        (
            "SELECT upper(name) AS u, CASE WHEN age > 28 THEN 'old' ELSE 'young' END AS a \
             FROM users WHERE __key = 'user:9'",
            &["u,a", "N9,old"],
        ),
        ("SELECT DISTINCT __type, __ttl FROM users", &["__type,__ttl", "hash,"]),
        ("SELECT name FROM users WHERE __slot = 8639", &["name", "n10"]),
        (
            "SELECT name FROM users WHERE age < 22 UNION ALL SELECT buyer FROM orders WHERE amount < 2 ORDER BY 1",
            &["name", "n1", "user:2"],
        ),
        (
            "WITH old AS (SELECT * FROM users WHERE age > 28) SELECT count(*) AS n FROM old",
            &["n", "2"],
        ),
    ] {
        let mut found = of_tables(&server, query);
        if !query.contains("ORDER BY") {
            found[1..].sort();
        }
        assert_eq!(found, expected, "{query}");
    }
}

#[test]
fn every_type_of_keys_is_a_table() {
    let server = start(&[]);
    do_all(
        &server,
        &[
            "SET text:1 hello",
            "RPUSH queue:1 a b",
            "SADD tags:1 x",
            "ZADD board 1.5 a 2 b",
            "XADD log:1 1-1 code 200 path /",
            "SET text:2 world PX 100000000",
            "HSET mixed:1 f 1",
            "SET mixed:2 1",
        ],
    );
    for (query, expected) in [
        (
            "SELECT __key, __value FROM \"text:*\" ORDER BY 1",
            &["__key,__value", "text:1,hello", "text:2,world"][..],
        ),
        ("SELECT __ttl > 0 AS t FROM \"text:*\" WHERE __key = 'text:2'", &["t", "true"]),
        (
            "SELECT __index, __member FROM \"queue:*\" ORDER BY 1",
            &["__index,__member", "0,a", "1,b"],
        ),
        ("SELECT __member FROM \"tags:*\"", &["__member", "x"]),
        (
            "CREATE EXTERNAL TABLE board STORED AS KVASIR LOCATION 'board'; \
             SELECT __member, __score FROM board ORDER BY __score DESC",
            &["__member,__score", "b,2.0", "a,1.5"],
        ),
        ("SELECT __id, code, path FROM \"log:*\"", &["__id,code,path", "1-1,200,/"]),
        (
            "SELECT __type, count(*) AS n FROM \"mixed:*\" GROUP BY __type ORDER BY 1",
            &["__type,n", "hash,1", "string,1"],
        ),
        (
            "CREATE EXTERNAL TABLE m STORED AS KVASIR LOCATION 'mixed:*' OPTIONS (type 'hash'); \
             SELECT __key, f FROM m",
            &["__key,f", "mixed:1,1"],
        ),
    ] {
        assert_eq!(rows(&server, query), expected, "{query}");
    }
}

#[test]
fn columns_are_guessed_and_shown() {
    let server = start(&[]);
    do_all(
        &server,
        &[
            "HSET e:1 n 1 x 1.5 b true t 2026-01-01T00:00:00Z s 007 i 7",
            "HSET e:2 n -2 x 2 b false t 2026-01-02T00:00:00.5Z s abc Up 1",
        ],
    );
    let output = run(server.port(), &["-c", "SELECT sum(n), sum(x) FROM \"e:*\""]);
    let told = String::from_utf8(output.stderr).expect("text");
    let columns = "n bigint, x double, b boolean, t timestamp, s text, i bigint";
    assert!(told.starts_with("e:* is hash: __key text, "), "{told}");
    for column in columns.split(", ").chain(["\"Up\" bigint"]) {
        assert!(told.contains(column), "{told}");
    }
    let none = failure(&server, "SELECT * FROM \"nothing:*\"");
    assert!(none.contains("no key matches nothing:*"), "{none}");
}

#[test]
fn a_persisted_table_stays_as_it_was() {
    let server = start_filled();
    let query = "CREATE EXTERNAL TABLE now (age BIGINT) STORED AS KVASIR LOCATION 'user:*' \
                 OPTIONS (persist 'true'); \
                 CREATE EXTERNAL TABLE users (age BIGINT) STORED AS KVASIR LOCATION 'user:*'; \
                 INSERT INTO users VALUES ('user:99', 99); \
                 SELECT (SELECT count(*) FROM now) AS before, \
                 (SELECT count(*) FROM users) AS after, \
                 (SELECT age FROM now WHERE __key = 'user:3') AS age";
    assert_eq!(rows(&server, query), ["count", "1", "before,after,age", "10,11,23"]);
    let insert =
        format!("{} INSERT INTO now VALUES ('user:98', 1)", &query[..query.find(';').unwrap() + 1]);
    assert!(failure(&server, &insert).contains("a persisted table is not written to"));
}

#[test]
fn rows_are_shown_as_what_is_asked_for() {
    let server = start_filled();
    let query = "SELECT __key, age FROM \"user:*\" WHERE age = 21";
    let show = |args: &[&str]| {
        let output = run(server.port(), &[args, &["-c", query]].concat());
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).expect("text")
    };
    assert_eq!(show(&["--format", "csv"]), "__key,age\nuser:1,21\n");
    assert_eq!(show(&["--format", "json"]), "{\"__key\":\"user:1\",\"age\":21}\n");
    assert!(show(&[]).contains("| user:1 | 21  |"), "{}", show(&[]));
    let directory = Directory::new().expect("a folder");
    let file = directory.path().join("rows");
    let path = file.to_str().expect("text");
    assert_eq!(show(&["--format", "parquet", "-o", path]), "");
    let bytes = std::fs::read(&file).expect("it is there");
    assert!(bytes.starts_with(b"PAR1") && bytes.ends_with(b"PAR1"));
    assert_eq!(show(&["--format", "csv", "-o", path]), "");
    assert_eq!(std::fs::read_to_string(&file).expect("it is there"), "__key,age\nuser:1,21\n");
    let script = directory.path().join("script.sql");
    std::fs::write(&script, "-- two statements\nSELECT 1 AS a; SELECT 2 AS b;").expect("written");
    let output = run(server.port(), &["--format", "csv", "-f", script.to_str().expect("text")]);
    assert_eq!(output.stdout, b"a\n1\nb\n2\n");
}
