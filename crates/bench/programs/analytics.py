"""What a client, a script in the server, scipy and EXPORT need; prints figures as JSON.

  analytics.py load PORT EDGES            sets of neighbours, out:<node>
  analytics.py graph PORT EDGES           GRAPH.PAGERANK, beside the sum of all ranks
  analytics.py client PORT EDGES          PageRank by redis-py: ranks as keys, pipelines
  analytics.py script PORT EDGES          PageRank by a script in the server, a node a call
  analytics.py scipy EDGES                a sparse matrix
  analytics.py duckdb EDGES               joins and sums in SQL
  analytics.py lookup PORT COUNT          GET of one of so many records of 10 B
  analytics.py records PORT COUNT         as many hashes of eight fields, rec:<n>
  analytics.py export PORT                EXPORT of all these to pyarrow
  analytics.py scan PORT                  the same by SCAN and HGETALL
"""

import json
import sys
import time

ITERATIONS = 10
# A client and a script are too slow for the whole graph: figures are of so many edges, and grow
# with them.
EDGES_OF_SLOW = 200_000


def read_edges(path, most=None):
    edges = []
    with open(path) as file:
        for line in file:
            if not line.startswith("#"):
                start, end = line.split()
                edges.append((int(start), int(end)))
                if len(edges) == most:
                    break
    return edges


def connect(port):
    import redis

    return redis.Redis(port=int(port))


def by_source(edges):
    rows = {}
    for start, end in edges:
        rows.setdefault(start, []).append(end)
    return rows


def load(port, path, prefix="out:", most=None):
    client, rows = connect(port), by_source(read_edges(path, most))
    begin, pipe = time.perf_counter(), client.pipeline(transaction=False)
    for number, (node, row) in enumerate(rows.items()):
        pipe.sadd(f"{prefix}{node}", *row)
        if number % 1000 == 999:
            pipe.execute()
    pipe.execute()
    return {"keys": len(rows), "load_s": time.perf_counter() - begin}


def graph(port, path):
    del path
    answer = connect(port).execute_command(
        "GRAPH.PAGERANK", "MATCH", "out:*", "ITERATIONS", ITERATIONS, "TOP", 1
    )
    if isinstance(answer, list):
        answer = dict(zip(answer[::2], answer[1::2]))
    value = lambda name: float(answer[name])
    return {
        "nodes": int(answer[b"nodes"]),
        "sum": value(b"sum"),
        "build_s": value(b"load_seconds"),
        "iteration_s": value(b"compute_seconds") / ITERATIONS,
        "memory_mb": value(b"memory_bytes") / 1e6,
    }


def client_ranks(port, path):
    client, prefix = connect(port), "few:"
    edges = read_edges(path, EDGES_OF_SLOW)
    load(port, path, prefix, EDGES_OF_SLOW)
    nodes = sorted({node for edge in edges for node in edge})
    sources = sorted({start for start, _ in edges})
    pipe = client.pipeline(transaction=False)
    for node in nodes:
        pipe.set(f"rank:{node}", 1.0)
    pipe.execute()
    begin = time.perf_counter()
    sums = {}
    for at in range(0, len(sources), 1000):
        some = sources[at : at + 1000]
        for node in some:
            pipe.smembers(f"{prefix}{node}")
            pipe.get(f"rank:{node}")
        answers = pipe.execute()
        for row, rank in zip(answers[::2], answers[1::2]):
            for other in row:
                sums[other] = sums.get(other, 0.0) + float(rank) / len(row)
    for number, node in enumerate(nodes):
        pipe.set(f"rank:{node}", 0.15 + 0.85 * sums.get(str(node).encode(), 0.0))
        if number % 1000 == 999:
            pipe.execute()
    pipe.execute()
    return {"edges": len(edges), "iteration_s": time.perf_counter() - begin}


SCRIPT = """
local row = redis.call('smembers', KEYS[1])
local rank = tonumber(redis.call('get', KEYS[2])) / #row
for _, other in ipairs(row) do redis.call('incrbyfloat', 'sum:' .. other, rank) end
return #row
"""


def script_ranks(port, path):
    client, prefix = connect(port), "few:"
    edges = read_edges(path, EDGES_OF_SLOW)
    load(port, path, prefix, EDGES_OF_SLOW)
    nodes = sorted({node for edge in edges for node in edge})
    pipe = client.pipeline(transaction=False)
    for node in nodes:
        pipe.set(f"rank:{node}", 1.0)
        pipe.delete(f"sum:{node}")
    pipe.execute()
    run, begin = client.register_script(SCRIPT), time.perf_counter()
    for node in sorted({start for start, _ in edges}):
        run(keys=[f"{prefix}{node}", f"rank:{node}"])
    return {"edges": len(edges), "iteration_s": time.perf_counter() - begin}


def scipy_ranks(path):
    import numpy
    from scipy.sparse import csr_matrix

    begin = time.perf_counter()
    edges = numpy.loadtxt(path, dtype=numpy.int64, comments="#")
    ids, numbers = numpy.unique(edges, return_inverse=True)
    numbers = numbers.reshape(edges.shape)
    degrees = numpy.bincount(numbers[:, 0], minlength=len(ids))
    weights = 1.0 / degrees[numbers[:, 0]]
    matrix = csr_matrix((weights, (numbers[:, 1], numbers[:, 0])), shape=(len(ids), len(ids)))
    built, ranks = time.perf_counter(), numpy.ones(len(ids))
    for _ in range(ITERATIONS):
        ranks = 0.15 + 0.85 * (matrix @ ranks)
    took = time.perf_counter() - built
    return {
        "nodes": len(ids),
        "sum": float(ranks.sum()),
        "build_s": built - begin,
        "iteration_s": took / ITERATIONS,
    }


def duckdb_ranks(path):
    import duckdb

    begin, base = time.perf_counter(), duckdb.connect()
    base.execute("SET threads = 2")
    columns = "{'source': 'BIGINT', 'target': 'BIGINT'}"
    source = f"read_csv('{path}', delim='\\t', header=false, columns={columns})"
    base.execute(f"CREATE TABLE edges AS SELECT source, target FROM {source}")
    base.execute("CREATE TABLE degrees AS SELECT source, count(*) AS degree FROM edges GROUP BY source")
    nodes = "SELECT source AS node FROM edges UNION SELECT target FROM edges"
    base.execute(f"CREATE TABLE ranks AS SELECT node, 1.0::DOUBLE AS rank FROM ({nodes})")
    built = time.perf_counter()
    for _ in range(ITERATIONS):
        base.execute(
            "CREATE OR REPLACE TABLE ranks AS "
            "WITH given AS (SELECT target, sum(rank / degree) AS rank FROM edges "
            "JOIN degrees USING (source) JOIN ranks ON node = source GROUP BY target) "
            "SELECT ranks.node, 0.15 + 0.85 * coalesce(given.rank, 0) AS rank "
            "FROM ranks LEFT JOIN given ON node = target"
        )
    took = time.perf_counter() - built
    count, total = base.execute("SELECT count(*), sum(rank) FROM ranks").fetchall()[0]
    return {
        "nodes": count, "sum": total, "build_s": built - begin, "iteration_s": took / ITERATIONS,
    }


def lookup(port, count):
    client, count, gets = connect(port), int(count), 20_000
    pipe = client.pipeline(transaction=False)
    for number in range(count):
        pipe.set(f"look:{number}", f"{number:010d}")
        if number % 10_000 == 9999:
            pipe.execute()
    pipe.execute()
    begin = time.perf_counter()
    for number in range(gets):
        client.get(f"look:{number * 7919 % count}")
    return {"seconds": (time.perf_counter() - begin) / gets}


FIELDS = ["name", "version", "section", "size", "maintainer", "description", "depends", "sum"]


def records(port, count):
    client = connect(port)
    pipe = client.pipeline(transaction=False)
    for number in range(int(count)):
        row = {field: f"{field} of package {number} " * 4 for field in FIELDS[:-1]}
        pipe.hset(f"rec:{number}", mapping={**row, "sum": number})
        if number % 1000 == 999:
            pipe.execute()
    pipe.execute()
    return {"keys": int(count)}


def export(port):
    import pyarrow

    client, begin = connect(port), time.perf_counter()
    columns = ["__key", *FIELDS[:-1], "sum", "AS", "int64"]
    call = ["EXPORT", "BEGIN", "MATCH", "rec:*", "TYPE", "hash", "COLUMNS", *columns]
    (number,) = client.execute_command(*call)
    pull = iter(lambda: client.execute_command("EXPORT", "NEXT", number), None)
    table = pyarrow.ipc.open_stream(b"".join(pull)).read_all()
    took, rows = time.perf_counter() - begin, table.num_rows
    assert sum(table["sum"].to_pylist()) == rows * (rows - 1) // 2
    return {"rows": rows, "seconds": took, "rows_s": rows / took}


def scan(port):
    client, begin = connect(port), time.perf_counter()
    rows = []
    keys = list(client.scan_iter(match="rec:*", count=1000))
    for at in range(0, len(keys), 1000):
        pipe = client.pipeline(transaction=False)
        for key in keys[at : at + 1000]:
            pipe.hgetall(key)
        rows.extend(pipe.execute())
    took = time.perf_counter() - begin
    return {"rows": len(rows), "seconds": took, "rows_s": len(rows) / took}


COMMANDS = {
    "load": load,
    "graph": graph,
    "client": client_ranks,
    "script": script_ranks,
    "scipy": scipy_ranks,
    "duckdb": duckdb_ranks,
    "lookup": lookup,
    "records": records,
    "export": export,
    "scan": scan,
}

if __name__ == "__main__":
    print(json.dumps(COMMANDS[sys.argv[1]](*sys.argv[2:])))
