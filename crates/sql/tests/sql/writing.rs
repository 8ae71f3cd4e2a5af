//! Rows that become keys.

use kvasir_resp::value::Value;

use crate::glob;
use crate::support::{TABLES, ask, do_all, failure, of_tables, rows, run, start, start_filled};

#[test]
fn rows_are_inserted_as_hashes_strings_and_members() {
    let server = start_filled();
    let mut client = server.client().expect("it serves");
    let insert =
        "INSERT INTO users VALUES ('user:11', 'Ada', 36, NULL), ('user:12', NULL, 40, 'Rome')";
    assert_eq!(of_tables(&server, insert), ["count", "2"]);
    assert_eq!(client.text(&[b"HGET", b"user:11", b"name"]).expect("a text"), "Ada");
    assert_eq!(ask(&mut client, "HLEN user:12"), Value::Integer(2));

    let text = "CREATE EXTERNAL TABLE notes (__value TEXT) STORED AS KVASIR LOCATION 'note:*'; \
                INSERT INTO notes (__key, __value, __ttl) VALUES ('note:1', 'hello', 100000)";
    assert_eq!(rows(&server, text), ["count", "1"]);
    assert_eq!(client.text(&[b"GET", b"note:1"]).expect("a text"), "hello");
    assert_ne!(ask(&mut client, "PTTL note:1"), Value::Integer(-1));

    let text = format!(
        "{TABLES} CREATE EXTERNAL TABLE old (__member TEXT, __score DOUBLE) STORED AS KVASIR \
         LOCATION 'old'; INSERT INTO old (__key, __member, __score) \
         SELECT 'old', name, age FROM users WHERE age > 28 AND name IS NOT NULL"
    );
    assert_eq!(rows(&server, &text), ["count", "3"]);
    assert_eq!(client.text(&[b"ZSCORE", b"old", b"Ada"]).expect("a text"), "36");
}

#[test]
fn a_query_becomes_keys() {
    let server = start_filled();
    let mut client = server.client().expect("it serves");
    let create = "CREATE TABLE towns AS SELECT city, count(*) AS people, avg(age) AS age \
                  FROM users GROUP BY city; SELECT city, people FROM towns ORDER BY city";
    let expected = ["count", "3", "city,people", "Bonn,3", "Oslo,3", "Rome,4"];
    assert_eq!(of_tables(&server, create), expected);
    assert_eq!(client.text(&[b"HGET", b"towns:Rome", b"people"]).expect("a text"), "4");
    assert_eq!(client.text(&[b"HGET", b"towns:Rome", b"age"]).expect("a text"), "25.5");

    let create = "CREATE TABLE ages AS SELECT name AS __member, age AS __score FROM users";
    assert_eq!(of_tables(&server, create), ["count", "10"]);
    assert_eq!(client.text(&[b"ZSCORE", b"ages", b"n7"]).expect("a text"), "27");

    let create = "CREATE TABLE word AS SELECT name, upper(name) AS __value FROM users";
    assert_eq!(of_tables(&server, create), ["count", "10"]);
    assert_eq!(client.text(&[b"GET", b"word:n1"]).expect("a text"), "N1");

    let why = failure(&server, &format!("{TABLES} {create}"));
    assert!(why.contains("there are keys"), "{why}");
    let twice = "CREATE TABLE users AS SELECT 1 AS a";
    assert!(failure(&server, &format!("{TABLES} {twice}")).contains("there is a table"));
}

#[test]
fn what_cannot_be_written_is_told() {
    let server = start_filled();
    do_all(&server, &["SET user:t text", "RPUSH list:1 a"]);
    for (insert, reason) in [
        (
            "INSERT INTO users VALUES ('order:1', 'x', 1, 'y')",
            "the key 'order:1' is not one of user:*",
        ),
        ("INSERT INTO users VALUES (NULL, 'x', 1, 'y')", "a row without __key"),
        ("INSERT INTO users VALUES ('user:x', NULL, NULL, NULL)", "has no field"),
        ("INSERT INTO users VALUES ('user:t', 'x', 1, 'y')", "WRONGTYPE"),
        ("INSERT INTO users VALUES ('user:x', 'x')", "got 2 values"),
        ("INSERT INTO \"list:*\" VALUES ('list:1', 1, 'b')", "its order is its meaning"),
        ("UPDATE \"list:*\" SET __member = 'b'", "says which row it is"),
        ("DELETE FROM \"list:*\"", "rows of a list are not deleted"),
        ("CREATE TABLE t AS SELECT CAST(NULL AS TEXT) AS id, 1 AS a", "a row without __key"),
        ("CREATE TABLE t AS SELECT [1] AS a", "cannot be List"),
    ] {
        let why = failure(&server, &format!("{TABLES} {insert}"));
        assert!(why.contains(reason), "{insert}: {why}");
    }
    // What failed has made no table.
    let why = failure(
        &server,
        "CREATE TABLE t AS SELECT CAST(NULL AS TEXT) AS id, 1 AS a; SELECT * FROM t",
    );
    assert!(why.contains("a row without __key"), "{why}");
}

/// Of two rows that become one key, or one member of it, one would be lost.
#[test]
fn rows_that_are_one_key_are_not_written() {
    let server = start_filled();
    let mut client = server.client().expect("it serves");
    do_all(&server, &["SADD taken:1 a"]);
    let before = ask(&mut client, "DBSIZE");
    for (text, reason) in [
        ("CREATE TABLE t AS SELECT city, name FROM users", "two rows have the key 't:"),
        (
            "CREATE TABLE t AS SELECT * FROM (VALUES (1, 'a'), (NULL, 'b')) AS v(id, x)",
            "a row without __key",
        ),
        (
            "CREATE TABLE t AS SELECT city AS __member, age AS __score FROM users",
            "two rows have the key 't' and the member '",
        ),
        ("CREATE TABLE t AS SELECT 'other:' || name AS __key, age FROM users", "is not one of t:*"),
        // Keys of any type are in the way.
        ("CREATE TABLE taken AS SELECT 1 AS a, 2 AS b", "there are keys of taken already"),
        (
            "INSERT INTO users (__key, name) VALUES ('user:20', 'a'), ('user:21', 'b'), \
             ('user:20', 'c')",
            "two rows have the key 'user:20'",
        ),
        (
            "INSERT INTO users (__key, name) VALUES ('user:20', 'a'), (NULL, 'b')",
            "a row without __key",
        ),
        ("INSERT INTO users (name) VALUES ('a')", "a row without __key"),
        (
            "INSERT INTO users (__key, name) VALUES ('user:20', 'a'), ('order:9', 'b')",
            "the key 'order:9' is not one of user:*",
        ),
        (
            "INSERT INTO users (__key, name) VALUES ('user:20', 'a'), ('user:21', NULL)",
            "the row of 'user:21' has no field",
        ),
        (
            "CREATE EXTERNAL TABLE s (__member TEXT) STORED AS KVASIR LOCATION 's:*' \
             OPTIONS (type 'set'); INSERT INTO s VALUES ('s:1', 'a'), ('s:1', 'b'), ('s:1', 'a')",
            "two rows have the key 's:1' and the member 'a'",
        ),
        (
            "CREATE EXTERNAL TABLE n (__value TEXT) STORED AS KVASIR LOCATION 'user:*'; \
             INSERT INTO n VALUES ('user:20', 'a'), ('user:1', 'b')",
            "the key 'user:1' is a hash",
        ),
        (
            "CREATE EXTERNAL TABLE n (__value TEXT) STORED AS KVASIR LOCATION 'note:*'; \
             INSERT INTO n VALUES ('note:1', 'a'); UPDATE n SET __value = NULL",
            "the row of 'note:1' has no __value",
        ),
    ] {
        let why = failure(&server, &format!("{TABLES} {text}"));
        assert!(why.contains(reason), "{text}: {why}");
        do_all(&server, &["DEL note:1"]);
        assert_eq!(ask(&mut client, "DBSIZE"), before, "{text}");
    }
    // That one key has several members, and that a row is written over, is what is meant.
    let text = "INSERT INTO users (__key, name) VALUES ('user:1', 'again')";
    assert_eq!(of_tables(&server, text), ["count", "1"]);
    let text = "CREATE EXTERNAL TABLE s (__member TEXT) STORED AS KVASIR LOCATION 's:*' \
                OPTIONS (type 'set'); INSERT INTO s VALUES ('s:1', 'a'), ('s:1', 'b')";
    assert_eq!(rows(&server, text), ["count", "2"]);
}

/// The server says by KEYS which keys are of a pattern.
#[test]
fn a_glob_is_read_as_the_server_reads_it() {
    let server = start(&[]);
    let mut client = server.client().expect("it serves");
    let keys = ["a:sfx", "sfx", "b:sf", "axb", "a*b", "ab", "x1", "x-", "x]", "x^", "\\", "é:sfx"];
    let all: Vec<_> = [b"MSET".as_slice()]
        .into_iter()
        .chain(keys.iter().flat_map(|key| [key.as_bytes(), b"1"]))
        .collect();
    client.call(&all).expect("they are set");
    for pattern in [
        "*:sfx", "a*b", "a?b", "a\\*b", "x[0-9]", "x[^0-9]", "x[9-0]", "x[", "x[^", "x[]", "x[]]",
        "x[\\]]", "?", "??", "**f*", "[a-b]*", "*[a-b]", "\\\\", "\\", "*", "*?*?*", "x[^]",
        "[x^]*",
    ] {
        let found = client.call(&[b"KEYS", pattern.as_bytes()]).expect("it answers");
        let Value::Array(found) = found else { panic!("{found:?}") };
        for key in keys {
            let is_of = found.contains(&Value::Bulk(key.into()));
            assert_eq!(glob::matches(pattern.as_bytes(), key.as_bytes()), is_of, "{pattern} {key}");
        }
    }
}

#[test]
fn a_table_that_is_a_glob_has_no_other_keys() {
    let server = start(&[]);
    let mut client = server.client().expect("it serves");
    let table = "CREATE EXTERNAL TABLE t (a TEXT) STORED AS KVASIR LOCATION '*:sfx'";
    assert_eq!(
        rows(&server, &format!("{table}; INSERT INTO t VALUES ('x:sfx', '1')")),
        ["count", "1"]
    );
    for keys in ["('y:sfx', '1'), ('x:sf', '1')", "('x', '1')", "('', '1')"] {
        let why = failure(&server, &format!("{table}; INSERT INTO t VALUES {keys}"));
        assert!(why.contains("is not one of *:sfx"), "{why}");
        assert_eq!(ask(&mut client, "DBSIZE"), Value::Integer(1), "{keys}");
    }
}

#[test]
fn more_rows_than_memory_has_room_for_are_written() {
    let server = start(&[]);
    let text = "CREATE TABLE n AS SELECT value AS id, repeat('x', 1000) AS text \
                FROM generate_series(1, 20000)";
    let output = run(server.port(), &["--memory", "8", "--format", "csv", "-c", text]);
    let why = String::from_utf8_lossy(&output.stderr);
    assert_eq!(String::from_utf8_lossy(&output.stdout), "count\n20000\n", "{why}");
    let mut client = server.client().expect("it serves");
    assert_eq!(ask(&mut client, "DBSIZE"), Value::Integer(20000));
}

#[test]
fn rows_are_deleted() {
    let server = start_filled();
    let mut client = server.client().expect("it serves");
    do_all(&server, &["SET note:1 a", "SET note:2 b", "SADD s a b c", "ZADD z 1 a 2 b 3 c"]);
    do_all(&server, &["XADD x 1-1 n 1", "XADD x 2-1 n 2"]);
    let deleted = |text: &str, count: &str| {
        assert_eq!(of_tables(&server, text), ["count", count], "{text}");
    };
    deleted("DELETE FROM users WHERE age > 29", "1");
    deleted("DELETE FROM users WHERE __key = 'user:1'", "1");
    // What the filter asks of other tables counts too.
    deleted("DELETE FROM orders WHERE buyer NOT IN (SELECT __key FROM users)", "4");
    deleted("DELETE FROM users WHERE age > (SELECT max(age) FROM users)", "0");
    deleted("DELETE FROM \"note:*\" WHERE __value = 'b'", "1");
    deleted("DELETE FROM \"s*\" WHERE __member <> 'b'", "2");
    deleted("DELETE FROM \"z*\" WHERE __score >= 2", "2");
    deleted("DELETE FROM \"x*\" WHERE n = '1'", "1");
    for (call, left) in
        [("EXISTS user:10 user:1 note:2", 0), ("DBSIZE", 8 + 16 + 4), ("XLEN x", 1), ("ZCARD z", 1)]
    {
        assert_eq!(ask(&mut client, call), Value::Integer(left), "{call}");
    }
    assert_eq!(ask(&mut client, "SISMEMBER s b"), Value::Integer(1));
    assert_eq!(of_tables(&server, "DELETE FROM users"), ["count", "8"]);
    assert_eq!(ask(&mut client, "DBSIZE"), Value::Integer(20));
}

#[test]
fn rows_are_changed() {
    let server = start_filled();
    let mut client = server.client().expect("it serves");
    do_all(&server, &["SET n:1 5 EX 1000", "SET n:2 6", "ZADD z 1 a 2 b", "EXPIRE user:3 1000"]);
    for (text, count) in [
        ("UPDATE users SET age = age + 100, city = 'Ulm' WHERE age < 23", "2"),
        ("UPDATE users SET city = NULL WHERE __key = 'user:4'", "1"),
        ("UPDATE users u SET age = 0 WHERE u.__key IN (SELECT max(__key) FROM users)", "1"),
        ("UPDATE users SET __ttl = 5000000 WHERE name = 'n5'", "1"),
        ("UPDATE users SET __ttl = NULL WHERE name = 'n3'", "1"),
        ("UPDATE \"n:*\" SET __value = '7' WHERE __value = '5'", "1"),
        ("UPDATE \"z*\" SET __score = __score * 10 WHERE __member = 'b'", "1"),
        ("UPDATE users SET age = 1 WHERE FALSE", "0"),
    ] {
        assert_eq!(of_tables(&server, text), ["count", count], "{text}");
    }
    let mut is = |call: &str, expected: &str| {
        let words: Vec<_> = call.split(' ').map(str::as_bytes).collect();
        assert_eq!(client.text(&words).expect("a text"), expected, "{call}");
    };
    is("HGET user:1 age", "121");
    is("HGET user:2 city", "Ulm");
    is("HGET user:2 name", "n2");
    is("HGET user:9 age", "0");
    is("GET n:1", "7");
    is("ZSCORE z b", "20");
    is("ZSCORE z a", "1");
    assert_eq!(ask(&mut client, "HEXISTS user:4 city"), Value::Integer(0));
    assert_eq!(ask(&mut client, "TTL user:3"), Value::Integer(-1));
    assert_ne!(ask(&mut client, "TTL user:5"), Value::Integer(-1));
    assert_ne!(ask(&mut client, "TTL n:1"), Value::Integer(-1));
    assert_eq!(ask(&mut client, "DBSIZE"), Value::Integer(33));
}

/// Nor is a table written to whose rows are those of an earlier moment.
#[test]
fn what_has_gone_meanwhile_is_not_made_again() {
    let server = start(&[]);
    let mut client = server.client().expect("it serves");
    do_all(&server, &["ZADD gone 1 a 2 b", "SET word:1 a"]);
    // With its first row the key goes, and its second finds none.
    let text = "UPDATE \"gone*\" SET __score = 9, __ttl = -1";
    assert_eq!(rows(&server, text), ["count", "2"]);
    assert_eq!(ask(&mut client, "EXISTS gone"), Value::Integer(0));
    let table = "CREATE EXTERNAL TABLE kept STORED AS KVASIR LOCATION 'word:*' \
                 OPTIONS (persist 'true')";
    for change in ["DELETE FROM kept", "UPDATE kept SET __value = 'b'"] {
        let why = failure(&server, &format!("{table}; {change}"));
        assert!(why.contains("a persisted table is not written to"), "{change}: {why}");
    }
    assert_eq!(client.text(&[b"GET", b"word:1"]).expect("a text"), "a");
}

#[test]
fn many_rows_go_in_pipelines() {
    let server = start(&[]);
    let create = "CREATE TABLE n AS SELECT value AS id, value * value AS square \
                  FROM generate_series(1, 5000); SELECT count(*) AS c, sum(square) AS s FROM n";
    assert_eq!(rows(&server, create), ["count", "5000", "c,s", "5000,41679167500"]);
}
