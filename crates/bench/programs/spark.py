"""What Spark takes, by PySpark on two cores; prints figures as JSON.

  spark.py stock EDGES            PageRank as Spark's example has it: joins, of a part of the edges
  spark.py blocks EDGES           the same by blocks of rows in numpy, ranks sent to all of them
  spark.py lookup COUNT           an RDD of so many records of 10 B, hashed by key: one of them
"""

import json
import os
import sys
import time

os.environ["PYSPARK_PYTHON"] = sys.executable
# The driver hashes a key that is looked up as its workers did.
os.environ["PYTHONHASHSEED"] = "0"

import numpy  # noqa: E402
from pyspark import SparkConf, SparkContext  # noqa: E402

ITERATIONS = 10
# Joins of more edges do not fit into what a test machine has.
EDGES_OF_STOCK = 1_000_000
BLOCKS = 4
LOOKUPS = 20


def start():
    conf = SparkConf().setMaster("local[2]").set("spark.ui.enabled", "false")
    conf.set("spark.ui.showConsoleProgress", "false").set("spark.driver.memory", "8g")
    conf.set("spark.driver.maxResultSize", "2g")
    conf.set("spark.driver.bindAddress", "127.0.0.1").set("spark.driver.host", "127.0.0.1")
    context = SparkContext(conf=conf)
    context.setLogLevel("OFF")
    return context


def read_edges(path, most=None):
    return numpy.loadtxt(path, dtype=numpy.int64, comments="#", max_rows=most)


def stock(path):
    context, edges = start(), read_edges(path, EDGES_OF_STOCK)
    begin = time.perf_counter()
    links = context.parallelize(edges.tolist(), 2).map(tuple).groupByKey(2).mapValues(list).persist()
    links.count()
    built = time.perf_counter()
    ranks = links.mapValues(lambda targets: 1.0)
    for _ in range(ITERATIONS):
        given = links.join(ranks, 2).flatMap(
            lambda node: [(target, node[1][1] / len(node[1][0])) for target in node[1][0]]
        )
        ranks = given.reduceByKey(lambda a, b: a + b, 2).mapValues(lambda s: 0.15 + 0.85 * s)
    total = ranks.values().sum()
    took = time.perf_counter() - built
    return {
        "edges": len(edges), "sum": total, "build_s": built - begin, "iteration_s": took / ITERATIONS,
    }


def blocks(path):
    context, edges = start(), read_edges(path)
    begin = time.perf_counter()
    ids, numbers = numpy.unique(edges, return_inverse=True)
    sources, targets = numbers.reshape(edges.shape).T
    degrees, count = numpy.bincount(sources, minlength=len(ids)), len(ids)
    pieces = numpy.array_split(numpy.argsort(targets), BLOCKS)
    parts = [(sources[piece], targets[piece]) for piece in pieces]
    held = context.parallelize(parts, BLOCKS).persist()
    held.count()
    built, ranks = time.perf_counter(), numpy.ones(count)
    for _ in range(ITERATIONS):
        given = context.broadcast(numpy.divide(ranks, degrees, where=degrees > 0))

        def sums(part):
            weights = given.value[part[0]]
            first = part[1][0]
            return first, numpy.bincount(part[1] - first, weights)

        ranks = numpy.full(count, 0.15)
        for first, part in held.map(sums).collect():
            ranks[first : first + len(part)] += 0.85 * part
        given.destroy()
    took = time.perf_counter() - built
    return {
        "nodes": count, "sum": float(ranks.sum()), "build_s": built - begin,
        "iteration_s": took / ITERATIONS,
    }


def lookup(count):
    context, count = start(), int(count)
    records = context.parallelize(range(count), 2).map(lambda n: (n, f"{n:010d}"))
    records = records.partitionBy(2).persist()
    assert records.count() == count
    records.lookup(0)
    begin = time.perf_counter()
    for n in range(LOOKUPS):
        wanted = n * 7919 % count
        assert records.lookup(wanted) == [f"{wanted:010d}"]
    return {"seconds": (time.perf_counter() - begin) / LOOKUPS}


COMMANDS = {"stock": stock, "blocks": blocks, "lookup": lookup}

if __name__ == "__main__":
    print(json.dumps(COMMANDS[sys.argv[1]](*sys.argv[2:])))
