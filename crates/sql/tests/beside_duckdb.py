#!/usr/bin/env python3
"""Twenty queries by kvasir-sql, through Flight SQL, and by DuckDB over the same rows as Parquet: equal?

    kvasir-server --port 7000 & kvasir-sql -p 7000 serve --listen 127.0.0.1:7001 &
    pip install adbc-driver-flightsql pyarrow duckdb
    crates/sql/tests/beside_duckdb.py grpc://127.0.0.1:7001 [--users 10000] [--runs 3]

Both make the rows themselves, by the same formulas: users are hashes `bench-user:N`, orders hashes
`bench-order:N`. Then both write a table, change and delete rows of it. Fails if anything differs, and
tells the median time of each side.
"""

import argparse
import math
import pathlib
import statistics
import sys
import tempfile
import time

import adbc_driver_flightsql.dbapi
import duckdb

ROWS = {
    "users": (
        "bench-user:",
        "'bench-user:' || CAST(n AS TEXT) AS \"__key\", 'name' || CAST(n % 997 AS TEXT) AS name, "
        "18 + (n * 7919) % 60 AS age, 'city' || CAST((n * 31) % 50 AS TEXT) AS city",
        "name TEXT, age BIGINT, city TEXT",
        1,
    ),
    "orders": (
        "bench-order:",
        "'bench-order:' || CAST(n AS TEXT) AS \"__key\", "
        "'bench-user:' || CAST((n * 7907) % {users} AS TEXT) AS buyer, "
        "((n * 104729) % 100000) / 100.0 AS amount, (n * 13) % 8 AS kind, n AS serial",
        "buyer TEXT, amount DOUBLE, kind BIGINT, serial BIGINT",
        4,
    ),
}

QUERIES = [
    "SELECT count(*) FROM users",
    "SELECT count(*), sum(amount), min(amount), max(amount) FROM orders",
    "SELECT name, age FROM users WHERE age > 76",
    "SELECT name FROM users WHERE __key = 'bench-user:77'",
    "SELECT __key, age FROM users WHERE __key IN ('bench-user:1', 'bench-user:2', 'bench-user:x')",
    "SELECT count(*) FROM users WHERE __key LIKE 'bench-user:12%'",
    "SELECT count(*) FROM users WHERE name LIKE '%9' AND city <> 'city1'",
    "SELECT city, count(*), avg(age) FROM users GROUP BY city",
    "SELECT kind, sum(amount), count(DISTINCT buyer) FROM orders GROUP BY kind",
    "SELECT city, max(age) - min(age) FROM users GROUP BY city HAVING count(*) > 10",
    "SELECT city, sum(amount) FROM users JOIN orders ON buyer = users.__key GROUP BY city",
    "SELECT name, amount FROM users JOIN orders ON buyer = users.__key WHERE amount > 999",
    "SELECT count(*) FROM users LEFT JOIN orders ON buyer = users.__key AND amount > 990 "
    "WHERE serial IS NULL",
    "SELECT count(*) FROM users WHERE __key IN (SELECT buyer FROM orders WHERE amount < 5)",
    "SELECT serial, rank() OVER (PARTITION BY kind ORDER BY amount DESC, serial) AS r FROM orders "
    "ORDER BY r, serial LIMIT 40",
    "SELECT serial, sum(amount) OVER (ORDER BY serial ROWS 9 PRECEDING) FROM orders "
    "WHERE serial <= 500",
    "WITH paid AS (SELECT buyer, sum(amount) AS total FROM orders GROUP BY buyer) "
    "SELECT city, max(total) FROM paid JOIN users ON buyer = users.__key GROUP BY city",
    "SELECT CASE WHEN age < 30 THEN 'young' WHEN age < 50 THEN 'grown' ELSE 'old' END AS c, "
    "count(*) FROM users GROUP BY c",
    "SELECT name FROM users WHERE age = 18 UNION SELECT city FROM users WHERE age = 19",
    "SELECT amount, serial FROM orders ORDER BY amount DESC, serial LIMIT 25",
]

# What is written back, and what both have then.
CHANGES = [
    "CREATE TABLE totals AS SELECT city, count(*) AS people, sum(age) AS age FROM users GROUP BY city",
    "UPDATE totals SET people = people * 2, age = NULL WHERE city < 'city3'",
    "DELETE FROM totals WHERE people > (SELECT avg(people) FROM totals) AND age IS NOT NULL",
    "INSERT INTO totals (city, people) SELECT 'new', max(people) FROM totals",
    "DELETE FROM totals",
]
TOTALS = "SELECT city, people, age FROM totals"


def comparable(rows):
    def cell(value):
        if isinstance(value, float) or type(value).__name__ == "Decimal":
            return float(f"{float(value):.9g}")
        return value

    return sorted((tuple(cell(value) for value in row) for row in rows), key=repr)


def is_equal(ours, theirs):
    def same(a, b):
        if isinstance(a, float) or isinstance(b, float):
            return math.isclose(a, b, rel_tol=1e-9)
        return a == b

    same_rows = (len(a) == len(b) and all(map(same, a, b)) for a, b in zip(ours, theirs))
    return len(ours) == len(theirs) and all(same_rows)


def timed(run, runs):
    times = []
    for _ in range(runs):
        begin = time.perf_counter()
        rows = run()
        times.append(time.perf_counter() - begin)
    return comparable(rows), statistics.median(times) * 1000


def load(ours, theirs, users, folder):
    for table, (prefix, columns, declared, times) in ROWS.items():
        columns, count = columns.format(users=users), users * times
        ours.execute(
            f"CREATE EXTERNAL TABLE {table} STORED AS KVASIR LOCATION '{prefix}*' ({declared})"
        )
        ours.execute(
            f"INSERT INTO {table} SELECT {columns} "
            f"FROM (SELECT value AS n FROM generate_series(0, {count - 1}))"
        )
        written = ours.fetchall()[0][0]
        assert written == count, (table, written)
        file = folder / f"{table}.parquet"
        theirs.execute(
            f"COPY (SELECT {columns} FROM (SELECT unnest(range({count})) AS n)) TO '{file}'"
        )
        theirs.execute(f"CREATE VIEW {table} AS SELECT * FROM '{file}'")


def change(ours, theirs):
    """How many statements left the two sides with different rows."""
    different = 0
    for statement in CHANGES:
        keyed = statement.replace("(city,", "(__key, city,").replace("SELECT 'new'", "SELECT 'totals:new', 'new'")
        ours.execute(keyed)
        ours.fetchall()
        theirs.execute(statement)
        found, expected = (comparable(side.execute(TOTALS).fetchall()) for side in (ours, theirs))
        verdict = "equal" if is_equal(found, expected) else "DIFFERENT"
        different += verdict != "equal"
        print(f"{len(found):>10} {len(expected):>9}  {verdict:<9} rows: {statement[:70]}")
    return different


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("uri")
    parser.add_argument("--user", default="default")
    parser.add_argument("--password", default="")
    parser.add_argument("--users", type=int, default=10_000)
    parser.add_argument("--runs", type=int, default=3)
    options = parser.parse_args()
    who = {"username": options.user, "password": options.password} if options.password else {}
    connection = adbc_driver_flightsql.dbapi.connect(options.uri, db_kwargs=who, autocommit=True)
    ours, theirs = connection.cursor(), duckdb.connect()
    folder = tempfile.TemporaryDirectory()
    load(ours, theirs, options.users, pathlib.Path(folder.name))
    different = 0
    print(f"{'kvasir-sql':>10} {'DuckDB':>9}  ms, median of {options.runs}")
    for number, query in enumerate(QUERIES, 1):
        found, took_ms = timed(lambda: ours.execute(query).fetchall(), options.runs)
        expected, their_ms = timed(lambda: theirs.execute(query).fetchall(), options.runs)
        verdict = "equal" if is_equal(found, expected) else "DIFFERENT"
        different += verdict != "equal"
        print(f"{took_ms:10.1f} {their_ms:9.1f}  {verdict:<9} {number:2} {query[:70]}")
        if verdict != "equal":
            print("   ours", found[:3], "theirs", expected[:3])
    different += change(ours, theirs)
    connection.close()
    sys.exit(f"{different} statements differ" if different else 0)


if __name__ == "__main__":
    main()
