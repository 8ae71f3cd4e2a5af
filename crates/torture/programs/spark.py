"""PySpark by clients/python: every type both ways, filters that are pushed, the page's jobs, a cluster.

python spark.py PORT [PART...]
"""

import datetime
import decimal
import os
import pathlib
import re
import subprocess
import sys
import tempfile
import time

import redis

ROOT = pathlib.Path(__file__).parents[3]
# Spark's workers look for the packages too.
os.environ["PYSPARK_PYTHON"] = sys.executable
os.environ["PYTHONPATH"] = str(ROOT / "clients/python")
sys.path.insert(0, os.environ["PYTHONPATH"])

from pyspark.sql import SparkSession  # noqa: E402

from kvasir.spark import register  # noqa: E402

ROWS = 2000
COLUMNS = "__key string, text string, raw binary, int int, float double, bool boolean, time timestamp"


def start_spark():
    settings = {
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.shuffle.partitions": "2",
        "spark.default.parallelism": "2",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.host": "127.0.0.1",
    }
    builder = SparkSession.builder.master("local[2]")
    for name, value in settings.items():
        builder = builder.config(name, value)
    spark = builder.getOrCreate()
    spark.sparkContext.setLogLevel("OFF")
    register(spark)
    return spark


class Frames:
    """Keys of one server, or of its cluster."""

    def __init__(self, spark, port):
        self.spark, self.port = spark, port

    def load(self, pattern, columns=None, **options):
        reader = self.spark.read.format("kvasir").options(port=self.port, **options)
        return (reader.schema(columns) if columns else reader).load(pattern)

    def save(self, frame, pattern, **options):
        writer = frame.write.format("kvasir").mode("append")
        writer.options(port=self.port, **options).save(pattern)


def row_of(n):
    moment = datetime.datetime.fromtimestamp(n, datetime.timezone.utc)
    return (f"row:{n}", f"é{n}", b"\xff%d" % n, n - 7, n / 4, n % 2 == 1, moment)


def fails(reason, work):
    try:
        work()
    except Exception as error:  # noqa: BLE001: whatever Spark makes of it
        assert reason in str(error), error
        return
    raise AssertionError(f"nothing was said of: {reason}")


def hashes(frames, client, partitions):
    """Rows of every type go there and come back, and are counted in both places."""
    written = frames.spark.createDataFrame([row_of(n) for n in range(ROWS)], COLUMNS)
    frames.save(written, "row:*")
    assert client.dbsize() == ROWS
    assert client.hget("row:9", "time") == b"1970-01-01T00:00:09.000Z"
    read = frames.load("row:*", COLUMNS)
    assert read.rdd.getNumPartitions() == partitions
    assert read.count() == ROWS
    assert read.exceptAll(written).count() == 0 and written.exceptAll(read).count() == 0
    total = read.where("bool").groupBy().sum("int").first()[0]
    assert total == sum(n - 7 for n in range(ROWS) if n % 2)


def filters(frames, exported):
    """What the keys' names can tell is asked of the server."""
    rows = frames.load("row:*", "__key string, int int")
    for condition, count, pulled in [
        ("__key = 'row:7'", 1, 1),
        ("__key IN ('row:7', 'row:8', 'other:1')", 2, 2),
        ("__key LIKE 'row:199%'", 11, 11),
        ("__key LIKE 'row:%'", ROWS, ROWS),
        ("__key LIKE 'other%'", 0, 0),
        ("__key = 'row:7' AND __key = 'row:8'", 0, 0),
        ("__key LIKE 'row:19%' AND int > 1990", 2, 111),
        ("__key <> 'row:7'", ROWS - 1, ROWS),
    ]:
        before = exported()
        assert rows.where(condition).count() == count, condition
        assert exported() - before == pulled, (condition, exported() - before)


def read_here(frames, client):
    """Types that the server has no word for are written as texts, and read back as they were."""
    columns = "__key string, day date, price decimal(12,3), at timestamp_ntz, nothing date"
    day, at = datetime.date(2024, 2, 29), datetime.datetime(2024, 2, 29, 23, 59, 59, 123456)
    rows = [
        ("mixed:1", day, decimal.Decimal("-12.500"), at, None),
        ("mixed:2", datetime.date(1, 1, 1), decimal.Decimal("0.001"), at.replace(microsecond=0), None),
    ]
    frames.save(frames.spark.createDataFrame(rows, columns), "mixed:*")
    assert client.hgetall("mixed:1") == {
        b"day": b"2024-02-29", b"price": b"-12.500", b"at": b"2024-02-29T23:59:59.123456"
    }
    # Who wrote it may have said that it is UTC.
    client.hset("mixed:2", "at", "2024-02-29T23:59:59Z")
    read = frames.load("mixed:*", columns).orderBy("__key")
    assert [tuple(row) for row in read.collect()] == rows, read.collect()
    assert read.where("day > '2000-01-01' AND price < 0").count() == 1
    assert frames.load("mixed:*").columns == ["__key", "at", "day", "price", "__ttl"]
    client.delete("mixed:1", "mixed:2")


def odd_names(frames, client):
    """Fields and keys that are called as nothing else is."""
    client.hset("odd:1", mapping={"__value": "v", "__id": "i", "__ttl": "t", "a": "1"})
    client.hset(b"odd:\xff", "a", "2")
    client.set("odds:1", "x")
    odd = frames.load("odd:1")
    assert odd.columns == ["__key", "a", "__ttl"] and odd.first()["a"] == "1"
    keys = frames.load("odd:*", "__key binary, a string")
    assert {bytes(row["__key"]) for row in keys.collect()} == {b"odd:1", b"odd:\xff"}
    assert keys.where("__key = X'6F64643AFF'").count() == 1
    client.delete("odd:1", b"odd:\xff", "odds:1")


def others(frames, client):
    spark = frames.spark
    frames.save(spark.createDataFrame([("a", "1"), ("b", "2")], "id string, __value string"),
                "note:*", key="id")
    assert client.get("note:b") == b"2"
    members = [("team:1", "x", 1.5), ("team:1", "y", 2.5)]
    frames.save(spark.createDataFrame(members, "__key string, __member string, __score double"), "team:*")
    assert client.zrange("team:1", 0, -1, withscores=True) == [(b"x", 1.5), (b"y", 2.5)]
    columns = "__key string, __member string, __ttl bigint"
    frames.save(spark.createDataFrame([("tags:1", "t", 10**9)], columns), "tags:*", type="set")
    assert client.smembers("tags:1") == {b"t"} and client.pttl("tags:1") > 0
    client.rpush("queue:1", "p", "q")
    client.xadd("log:1", {"path": "/", "status": 200}, id="1-1")
    # Without a schema the first key tells it.
    assert [tuple(row) for row in frames.load("team:*").collect()] == [(*m, None) for m in members]
    assert frames.load("queue:*").orderBy("__index").first()["__member"] == "p"
    entry = frames.load("log:*").first()
    assert (entry["__id"], entry["path"], entry["status"]) == ("1-1", "/", "200")
    assert frames.load("row:*").columns == [
        "__key", "bool", "float", "int", "raw", "text", "time", "__ttl"
    ]


def refused(frames, client):
    client.hset("row:bad", "int", "many")
    rows = frames.load("row:*", "__key string, int int")
    fails("'many' does not fit column 'int'", rows.count)
    nulls = frames.load("row:*", "__key string, int int", misfits="null")
    assert nulls.where("int IS NULL").count() == 1
    client.delete("row:bad")
    fails("no key matches none:*", lambda: frames.load("none:*"))
    fails("a column cannot be array<int>", frames.load("row:*", "a array<int>").count)
    client.hset("day:1", mapping={"d": "2026-02-30", "n": "1.5"})
    fails("'2026-02-30' does not fit column 'd'", frames.load("day:*", "d date").count)
    days = frames.load("day:*", "d date, n decimal(9,2)", misfits="null")
    assert days.collect() == [(None, decimal.Decimal("1.50"))], days.collect()
    client.delete("day:1")
    fails("there is no type 'tree'", lambda: frames.load("row:*", type="tree"))
    one = frames.spark.createDataFrame([("other:1", "x")], "__key string, a string")
    fails("is not one of row:*", lambda: frames.save(one, "row:*"))
    fails("with one *", lambda: frames.save(one, "row"))
    fails("its order is its meaning", lambda: frames.save(one, "other:*", type="list"))
    overwrite = one.write.format("kvasir").options(port=frames.port).mode("overwrite")
    fails("overwriting would delete keys", lambda: overwrite.save("other:*"))
    client.set("other:1", "a string")
    fails("WRONGTYPE", lambda: frames.save(one, "other:*"))


def job(title, frames):
    """What the text of docs/sql.md leaves behind."""
    page = (ROOT / "docs/sql.md").read_text()
    text = page.split(f"### {title}\n")[1].split("```python\n")[1].split("```")[0]
    text = re.sub(r'format\("kvasir"\)', f'format("kvasir").option("port", {frames.port})', text)
    names = {"spark": frames.spark, "sc": frames.spark.sparkContext}
    exec(text, names)
    return names


def jobs(frames, client):
    client.flushall()
    client.mset({"line:1": "the cat and the dog", "line:2": "the end"})
    counts = job("Word count", frames)["counts"]
    assert counts == [("the", 3), ("and", 1), ("cat", 1), ("dog", 1), ("end", 1)], counts
    for at, path, status, size in [
        ("2026-07-01T10:00:00Z", "/a", 200, 100),
        ("2026-07-01T10:59:59Z", "/b", 500, 20),
        ("2026-07-01T11:00:00Z", "/a", 404, 30),
    ]:
        client.xadd("log:web", {"at": at, "path": path, "status": status, "bytes": size})
    names = job("Log analysis", frames)
    assert [found for _, found in names["hours"]] == [(2, 1, 120), (1, 1, 30)], names["hours"]
    assert sorted(names["paths"]) == [("/a", 2), ("/b", 1)]
    for n in range(1, 200):
        client.sadd(f"out:{n}", *{n * k % 211 for k in (2, 3, 5, 7)})
    ranks = dict(job("PageRank", frames)["ranks"].collect())
    call = "GRAPH.PAGERANK MATCH out:* DEFINITION A TOP 1000"
    answer = client.execute_command(*call.split())
    answer = answer if isinstance(answer, dict) else dict(zip(answer[::2], answer[1::2]))
    expected = {int(node): float(rank) for node, rank in answer[b"result"]}
    assert len(ranks) == len(expected) > 100
    assert all(abs(rank - expected[node]) < 1e-9 for node, rank in ranks.items())


def cluster(spark, count, work):
    """Does the work on a cluster of so many nodes."""
    with tempfile.TemporaryDirectory() as folder:
        port = 21000 + os.getpid() % 2000 * 4
        call = [os.environ["KVASIR_PROGRAM"], "cluster", "--nodes", str(count), "--replicas", "0"]
        call += ["--port", str(port), "--dir", folder]
        nodes = subprocess.Popen(call, stdout=subprocess.PIPE, text=True)
        try:
            for line in nodes.stdout:
                if "the cluster is up" in line:
                    break
            client = redis.cluster.RedisCluster(host="127.0.0.1", port=port)
            each = [redis.Redis(port=port + n) for n in range(count)]
            work(Frames(spark, port), client, each)
        finally:
            nodes.terminate()
            nodes.wait()


def three_nodes(frames, client, each):
    # As many partitions as come nearest, of each node.
    hashes(frames, Sum(each, client), 9)
    filters(frames, lambda: sum(map(exported_rows, each)))
    others(frames, client)
    counts = [one.dbsize() for one in each]
    assert min(counts) > ROWS / 6, counts
    assert frames.load("row:*", COLUMNS, partitions=2).rdd.getNumPartitions() == 3


def one_node(frames, client, _):
    """Who has all slots is asked for keys of one slot at a time nevertheless."""
    client.set("k:1", "a")
    client.set("k:2", "b")
    keys = frames.load("k:*", "__key string, __value string", partitions=1)
    assert keys.rdd.getNumPartitions() == 1 and keys.count() == 2
    assert keys.where("__key IN ('k:1', 'k:2', 'k:3')").count() == 2


class Sum:
    """A cluster's client that counts the keys of all nodes."""

    def __init__(self, each, client):
        self.each, self.client = each, client

    def dbsize(self):
        return sum(one.dbsize() for one in self.each)

    def __getattr__(self, name):
        return getattr(self.client, name)


def exported_rows(client):
    return client.info("analytics")["exported_rows"]


if __name__ == "__main__":
    begin = time.monotonic()
    port = int(sys.argv[1])
    client = redis.Redis(port=port)
    client.flushall()
    spark = start_spark()
    frames = Frames(spark, port)
    for part, work in {
        "rows of every type": lambda: hashes(frames, client, 8),
        "types that are read here": lambda: read_here(frames, client),
        "odd names": lambda: odd_names(frames, client),
        "filters": lambda: filters(frames, lambda: exported_rows(client)),
        "values of other kinds": lambda: others(frames, client),
        "what is refused": lambda: refused(frames, client),
        "the page's jobs": lambda: jobs(frames, client),
        "three nodes": lambda: cluster(spark, 3, three_nodes),
        "a cluster of one": lambda: cluster(spark, 1, one_node),
    }.items():
        if not sys.argv[2:] or part in sys.argv[2:]:
            print(f"{part} ...", flush=True)
            work()
    spark.stop()
    print(f"spark: {ROWS} rows both ways, filters, jobs, of one node and of three "
          f"({time.monotonic() - begin:.0f} s)")
