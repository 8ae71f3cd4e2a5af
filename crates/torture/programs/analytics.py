"""EXPORT to pyarrow, by clients/python: every type comes back as it was set, from one moment.

python analytics.py PORT
"""

import datetime
import pathlib
import queue
import sys

import redis

sys.path.insert(0, str(pathlib.Path(__file__).parents[3] / "clients/python"))

from kvasir.analytics import batches, begin, export  # noqa: E402

ROWS = 5000


def hashes(client):
    pipe = client.pipeline(transaction=False)
    for n in range(ROWS):
        row = {"text": f"é{n}", "raw": b"\xff%d" % n, "int": n - 7, "float": n / 4}
        pipe.hset(f"row:{n}", mapping={**row, "bool": n % 2, "time": n * 1000})
    pipe.hdel("row:3", "int")
    pipe.pexpire("row:4", 10**9)
    pipe.execute()
    columns = {
        "__key": None,
        "__ttl": None,
        "__slot": None,
        "text": "utf8",
        "raw": "binary",
        "int": "int64",
        "float": "float64",
        "bool": "bool",
        "time": "timestamp",
    }
    table = export(client, "row:*", "hash", columns, streams=3)
    table.validate(full=True)
    assert table.num_rows == ROWS
    zone = datetime.timezone.utc
    for row in table.to_pylist():
        n = int(row["__key"][4:])
        assert row["text"] == f"é{n}" and row["raw"] == b"\xff%d" % n
        assert row["int"] == (None if n == 3 else n - 7) and row["float"] == n / 4
        assert row["bool"] == bool(n % 2)
        assert row["time"] == datetime.datetime.fromtimestamp(n, zone)
        assert (row["__ttl"] is not None) == (n == 4)
        assert row["__slot"] == client.execute_command("CLUSTER", "KEYSLOT", row["__key"])
    maps = export(client, "row:*", "hash", {"__key": None, "__fields": "binary"})
    maps.validate(full=True)
    row = dict(maps.filter([key == "row:9" for key in maps["__key"].to_pylist()])[1][0].as_py())
    assert row[b"int"] == b"2" and len(row) == 6


def others(client):
    client.rpush("list", *range(3), "x" * 3_000_000)
    client.sadd("set", *range(2000))
    client.zadd("zset", {f"m{n}": n / 3 for n in range(2000)})
    client.xadd("stream", {"f": "v", "g": 1}, id="1-1")
    client.xadd("stream", {"f": "w"}, id="2-1")
    rows = export(client, type="list").to_pylist()
    assert [row["__index"] for row in rows] == [0, 1, 2, 3] and len(rows[3]["__member"]) == 3_000_000
    members = export(client, type="set", columns={"__member": "int64"})
    assert sum(members["__member"].to_pylist()) == 1999 * 1000
    (number,) = begin(client, None, "zset")
    scores = {}
    for batch in batches(client, number):
        scores.update((row["__member"], row["__score"]) for row in batch.to_pylist())
    assert scores == {f"m{n}": n / 3 for n in range(2000)}
    columns = {"__id": None, "f": None, "g": "int64"}
    assert export(client, type="stream", columns=columns).to_pylist() == [
        {"__id": "1-1", "f": "v", "g": 1},
        {"__id": "2-1", "f": "w", "g": None},
    ]
    (number,) = begin(client, "row:*", "hash", nulls=True)
    rows = batches(client, number)
    assert next(rows).num_rows > 0
    rows.close()
    while client.info("analytics")["exports_active"]:
        pass
    table = export(client, keys=["list", "nosuch", "set"])
    assert sorted(table["__type"].to_pylist()) == ["list", "set"]
    try:
        export(client, "row:*", "hash", {"text": "int64"})
        raise AssertionError("a text is no integer")
    except redis.ResponseError as error:
        assert "does not fit column 'text'" in str(error)
    assert export(client, "nosuch:*", "hash", ["a"]).num_rows == 0


def pools(port):
    """A pool that gives another connection for each call, and clients that decode what they get."""
    turning = redis.BlockingConnectionPool(port=port, queue_class=queue.Queue, max_connections=3)
    columns = {"__key": None, "raw": "binary"}
    for client in [
        redis.Redis(connection_pool=turning),
        redis.Redis(port=port, decode_responses=True),
        redis.Redis(port=port, decode_responses=True, protocol=3),
        redis.Redis(port=port, single_connection_client=True),
    ]:
        for streams in [1, 3]:
            assert export(client, "row:*", "hash", columns, streams=streams).num_rows == ROWS
        (number,) = begin(client, "row:*", "hash", columns)
        assert sum(batch.num_rows for batch in batches(client, number)) == ROWS
        # Every connection is back in the pool.
        assert all(client.ping() for _ in range(10))


if __name__ == "__main__":
    client = redis.Redis(port=int(sys.argv[1]))
    client.flushall()
    hashes(client)
    others(client)
    pools(int(sys.argv[1]))
    print(f"analytics: {ROWS} rows of every type, and values of every kind, came back")
