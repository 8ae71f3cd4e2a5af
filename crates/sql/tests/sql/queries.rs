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
fn integers_do_not_wrap() {
    let server = start(&[]);
    do_all(&server, &["HSET big:1 n 9223372036854775807 g 1", "HSET big:2 n 1 g 1"]);
    do_all(&server, &["HSET big:3 n -5 g 2"]);
    let most = "CAST(9223372036854775807 AS BIGINT)";
    for (query, reason) in [
        ("SELECT n + 1 AS m FROM \"big:*\"", "verflow"),
        ("SELECT n * 2 AS m FROM \"big:*\"", "verflow"),
        ("SELECT -2 - n AS m FROM \"big:*\"", "verflow"),
        ("SELECT -(-n - 1) AS m FROM \"big:*\"", "verflow"),
        ("SELECT __key FROM \"big:*\" WHERE n + 1 > 0", "verflow"),
        ("SELECT sum(n) AS m FROM \"big:*\" WHERE n > 0", "9223372036854775808"),
        ("SELECT g, sum(n) AS m FROM \"big:*\" GROUP BY g", "9223372036854775808"),
        ("SELECT sum(n) OVER (ORDER BY n) AS m FROM \"big:*\" WHERE n > 0", "9223372036854775808"),
        ("UPDATE \"big:*\" SET n = n + 1", "verflow"),
    ] {
        let why = failure(&server, query);
        assert!(why.contains(reason), "{query}: {why}");
    }
    assert!(failure(&server, &format!("SELECT {most} + 1 AS m")).contains("verflow"));
    for (query, expected) in [
        // A sum may go beyond on its way.
        ("SELECT sum(n) AS m FROM \"big:*\"", &["m", "9223372036854775803"][..]),
        (
            "SELECT g, sum(n) AS m FROM \"big:*\" WHERE n < 2 GROUP BY g ORDER BY g",
            &["g,m", "1,1", "2,-5"],
        ),
        ("SELECT sum(DISTINCT g) AS m FROM \"big:*\"", &["m", "3"]),
        ("SELECT sum(n) FROM \"big:*\" WHERE n > 1", &["sum(big:*.n)", "9223372036854775807"]),
        (
            "SELECT g + 1 FROM \"big:*\" GROUP BY g + 1 ORDER BY 1",
            &["big:*.g + Int64(1)", "2", "3"],
        ),
        (
            "SELECT sum(g) OVER (ORDER BY g ROWS 1 PRECEDING) AS m FROM \"big:*\" ORDER BY m",
            &["m", "1", "2", "3"],
        ),
        ("SELECT sum(g + 1) AS a, sum(g + 2) AS b FROM \"big:*\"", &["a,b", "7,10"]),
        ("SELECT (SELECT max(g) FROM \"big:*\") * 3 AS m", &["m", "6"]),
        ("SELECT sum(n) AS m FROM \"big:*\" WHERE FALSE", &["m", "\"\""]),
    ] {
        assert_eq!(rows(&server, query), expected, "{query}");
    }
}

#[test]
fn what_is_no_number_is_read_again() {
    let server = start(&[]);
    let create = "CREATE TABLE f AS SELECT * FROM (VALUES ('a', 1.5), ('b', CAST('NaN' AS DOUBLE)), \
                  ('c', CAST('-inf' AS DOUBLE))) AS v(id, x)";
    assert_eq!(rows(&server, create), ["count", "3"]);
    let found = rows(&server, "SELECT id, x FROM \"f:*\" ORDER BY id");
    assert_eq!(found, ["id,x", "a,1.5", "b,NaN", "c,-inf"]);
    let typed = "CREATE EXTERNAL TABLE f (x DOUBLE) STORED AS KVASIR LOCATION 'f:*'; \
                 SELECT count(*) AS n FROM f WHERE isnan(x)";
    assert_eq!(rows(&server, typed), ["n", "1"]);
    // Alone it may be a word.
    do_all(&server, &["HSET word:1 w nan"]);
    assert_eq!(rows(&server, "SELECT w FROM \"word:*\""), ["w", "nan"]);
}

#[test]
fn fields_are_called_as_they_like() {
    let server = start(&[]);
    do_all(&server, &["HSET h:1 __value v __member m __id i __score s __index x a 1"]);
    do_all(&server, &["HSET h:2 __key k __type t __ttl l __slot s __fields f a 2"]);
    do_all(&server, &["XADD x:1 1-1 __id 7 __value v n 5"]);
    let found = rows(&server, "SELECT * FROM \"h:*\" WHERE a < 3 ORDER BY a");
    assert_eq!(found.len(), 3, "{found:?}");
    let fields = "SELECT __key, __value, __member, __id, __score, __index, a FROM \"h:*\"";
    let found = rows(&server, &format!("{fields} ORDER BY a"));
    assert_eq!(found[1..], ["h:1,v,m,i,s,x,1", "h:2,,,,,,2"]);
    let found = rows(&server, "SELECT __value, __id FROM \"h:*\" WHERE __value = 'v'");
    assert_eq!(found, ["__value,__id", "v,i"]);
    let found = rows(&server, "SELECT __key, __id, __value, n FROM \"x:*\"");
    assert_eq!(found, ["__key,__id,__value,n", "x:1,1-1,v,5"]);
    assert_eq!(rows(&server, "UPDATE \"h:*\" SET __value = 'w' WHERE a = 1"), ["count", "1"]);
    assert_eq!(rows(&server, "SELECT __value FROM \"h:*\" WHERE a = 1"), ["__value", "w"]);
}

#[test]
fn a_key_may_be_bytes() {
    let server = start(&[]);
    let mut client = server.client().expect("it serves");
    for key in [&b"b:\xff\xfe"[..], b"b:1"] {
        client.call(&[b"HSET", key, b"n", b"1"]).expect("it is set");
    }
    let table = "CREATE EXTERNAL TABLE b (__key BYTEA, n BIGINT) STORED AS KVASIR LOCATION 'b:*'";
    for (query, expected) in [
        ("SELECT __key, n FROM b ORDER BY 1", &["__key,n", "623a31,1", "623afffe,1"][..]),
        ("SELECT count(*) AS c FROM b WHERE __key = 'b:1'", &["c", "1"]),
        ("SELECT count(*) AS c FROM b WHERE __key = X'623afffe'", &["c", "1"]),
        ("SELECT count(*) AS c FROM b WHERE __key LIKE 'b:1%'", &["c", "1"]),
        ("INSERT INTO b VALUES (X'623afd', 7)", &["count", "1"]),
        ("UPDATE b SET n = 5 WHERE __key = X'623afffe'", &["count", "1"]),
        ("DELETE FROM b WHERE n = 7", &["count", "1"]),
        ("SELECT sum(n) AS s FROM \"b:*\"", &["s", "6"]),
    ] {
        assert_eq!(rows(&server, &format!("{table}; {query}")), expected, "{query}");
    }
    assert_eq!(client.text(&[b"HGET", b"b:\xff\xfe", b"n"]).expect("a text"), "5");
    let outside = format!("{table}; INSERT INTO b VALUES (X'63ff', 1)");
    assert!(failure(&server, &outside).contains("is not one of b:*"));
}

#[test]
fn days_and_decimals_are_columns() {
    let server = start(&[]);
    do_all(
        &server,
        &["HSET d:1 day 2024-02-29 price 12.50", "HSET d:2 day 2024-03-01 price -0.25"],
    );
    let table =
        "CREATE EXTERNAL TABLE d (day DATE, price DECIMAL(10, 2)) STORED AS KVASIR LOCATION 'd:*'";
    for (query, expected) in [
        (
            "SELECT day, price FROM d ORDER BY day",
            &["day,price", "2024-02-29,12.50", "2024-03-01,-0.25"][..],
        ),
        ("SELECT sum(price) AS s FROM d WHERE day < '2024-03-01'", &["s", "12.50"]),
        ("INSERT INTO d VALUES ('d:3', DATE '2024-03-02', 1)", &["count", "1"]),
        ("SELECT price FROM d WHERE day = DATE '2024-03-02'", &["price", "1.00"]),
        ("CREATE TABLE e AS SELECT day, price FROM d", &["count", "3"]),
    ] {
        assert_eq!(rows(&server, &format!("{table}; {query}")), expected, "{query}");
    }
    do_all(&server, &["HSET d:4 day never"]);
    let why = failure(&server, &format!("{table}; SELECT day FROM d"));
    assert!(why.contains("'never' does not fit column 'day' of type date"), "{why}");
    let nulls =
        format!("{table} OPTIONS (misfits 'null'); SELECT count(*) AS n FROM d WHERE day IS NULL");
    assert_eq!(rows(&server, &nulls), ["n", "1"]);
}

#[test]
fn like_has_an_escape_of_ones_own() {
    let server = start(&[]);
    do_all(&server, &["HSET l:1 t a%b", "HSET l:2 t a_b", "HSET l:3 t axb", "HSET l:4 t a\\b"]);
    for (filter, expected) in [
        ("t LIKE 'a!%b' ESCAPE '!'", &["a%b"][..]),
        ("t LIKE 'a!_b' ESCAPE '!'", &["a_b"]),
        ("t LIKE 'a_b' ESCAPE '!'", &["a%b", "a\\b", "a_b", "axb"]),
        ("t NOT LIKE 'a!%%' ESCAPE '!'", &["a\\b", "a_b", "axb"]),
        ("t LIKE 'a\\b' ESCAPE '!'", &["a\\b"]),
        ("t ILIKE 'A!%B' ESCAPE '!'", &["a%b"]),
        ("__key LIKE 'l!:1' ESCAPE '!'", &["a%b"]),
    ] {
        let found = rows(&server, &format!("SELECT t FROM \"l:*\" WHERE {filter} ORDER BY t"));
        assert_eq!(found[1..], *expected, "{filter}");
    }
}

#[test]
fn digests_are_those_of_others() {
    let server = start(&[]);
    let mut client = server.client().expect("it serves");
    client.call(&[b"SET", b"v:1", b"\xff"]).expect("it is set");
    let long = "1234567890".repeat(8);
    for (query, expected) in [
        ("SELECT md5('') AS d".to_string(), "d41d8cd98f00b204e9800998ecf8427e"),
        ("SELECT md5('abc') AS d".to_string(), "900150983cd24fb0d6963f7d28e17f72"),
        (format!("SELECT md5('{long}') AS d"), "57edf4a22be3c955ac49da2e2107b67a"),
        ("SELECT md5(repeat('a', 55)) AS d".to_string(), "ef1772b6dff9a122358552954ad0df65"),
        ("SELECT md5(repeat('a', 56)) AS d".to_string(), "3b0c8ac703f828b04c6c197006d17218"),
        ("SELECT md5(repeat('a', 64)) AS d".to_string(), "014842d480b571495a4a0363793f7367"),
        ("SELECT md5(__value) AS d FROM \"v:*\"".to_string(), "00594fd4f42ba43fc1ca0427a0576295"),
        ("SELECT md5(NULL) AS d".to_string(), "\"\""),
        (
            "SELECT sha256('abc') AS d".to_string(),
            "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad",
        ),
    ] {
        assert_eq!(rows(&server, &query), ["d", expected], "{query}");
    }
}

#[test]
fn a_table_does_not_command_the_terminal() {
    let server = start(&[]);
    let mut client = server.client().expect("it serves");
    client
        .call(&[
            b"HSET",
            b"c:1",
            b"a\x1b[2J",
            b"x\x1b[31m\n\r\t\x07\x08\x7fy\xc2\x9bz",
            b"b",
            "é".as_bytes(),
        ])
        .expect("it is set");
    let output = run(server.port(), &["-c", "SELECT * FROM \"c:*\""]);
    let text = String::from_utf8(output.stdout).expect("text");
    assert!(text.contains(r"x\x1b[31m\n\r\t\a\b\x7fy\xc2\x9bz") && text.contains('é'), "{text}");
    assert!(text.contains(r"a\x1b[2J"), "{text}");
    assert!(!text.contains('\x1b'), "{text}");
    let told = String::from_utf8(output.stderr).expect("text");
    assert!(told.contains(r"a\x1b[2J") && !told.contains('\x1b'), "{told}");
    // What programs read is as it is.
    let output = run(server.port(), &["--format", "csv", "-c", "SELECT * FROM \"c:*\""]);
    assert!(String::from_utf8_lossy(&output.stdout).contains("\x1b[31m"));
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
