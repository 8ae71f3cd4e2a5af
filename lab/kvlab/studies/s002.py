"""Study 002: AOFUring, the append-only file written by io_uring."""

import re

from kvlab import bench, plots
from kvlab.cells import Cell
from kvlab.machine import Missing, tool
from kvlab.stats import ratio
from kvlab.studies.common import (
    DIFFERS, HOLDS, NAMES, PEERS, UNMEASURED, Claim, Plot, Report, Runs, Text, by_server, judged,
    show,
)

WAYS = ["off", "no", "everysec", "always"]
RING = ["everysec by io_uring", "always by io_uring"]
CALLS = ["SET", "LPUSH", "INCR"]
"""HSET has SET in its name: it is measured with it."""
LOAD = "50 connections"


def cells(quick, seed):
    found = []
    size = ["--keys", 1_000_000, "--seconds", 0.5 if quick else 1.5]
    for run in range(1, (1 if quick else 3) + 1):
        for server in PEERS:
            # What is claimed is claimed of SET; the others show that they are no different.
            for call in (CALLS[:1] if quick or run > 1 else CALLS):
                for way in WAYS:
                    # The ways by io_uring have the names of the others in theirs.
                    ways = 2 if server == "kvasir" and f"{way} by io_uring" in RING else 1
                    found.append(bench.cell("002", "aof", "aof", server, run,
                                            ways * (5 if quick else 8), "--only",
                                            f"{call}, {LOAD}, {way}", *size))
            if run == 1:
                found.append(bench.cell("002", "calls", "aof", server, run, 15, "--only",
                                        "system calls", *size))
    found.append(correctness_cell(quick))
    return found


def correctness_cell(quick):
    requests = 20_000 if quick else 200_000
    options = {"command": f"cargo xtask bench aof --correctness --keys {requests}"}

    def measure(context):
        if quick and not (context.kvasir.parent.parent / "tested/kvasir-server").is_file():
            raise Missing("--quick does not build the program that it runs (ten minutes); run "
                          f"`{options['command']}` once")
        command = [tool("cargo"), "xtask", "bench", "aof", "--correctness", "--keys",
                   str(requests)]
        text = bench.finish(command, 7200)
        found = re.findall(r"^(.*?): \d+ requests, (.*), killed: all there", text, re.M)
        if not found:
            raise Missing(f"no program said that all is there: {bench.last_words(text)}")
        return [{"server": "kvasir", "case": f"{name}, {way}", "all_there": 1.0}
                for name, way in found]

    return Cell("002/correctness/kvasir/all/1", measure, 12 if quick else 600, options)


def report(lines, papers, _machine):
    runs, paper = Runs(lines, "002"), papers["002"]
    tables = [
        by_server(runs, "aof", metric, title, decimals)
        for metric, title, decimals in (
            ("ops_s", "Requests per second", 0),
            ("average_ms", "Average latency, ms", 3),
            ("p99_ms", "99th percentile of latency, ms", 3),
            ("max_ms", "Longest latency, ms", 2),
            ("cpu_us", "CPU per request, µs", 2),
            ("resident_mb", "Memory, MB resident", 1),
        )
    ]
    calls = [
        by_server(runs, "calls", metric, f"System calls per 1,000 requests: {what}", 0)
        for metric, what in (("writes", "writes"), ("syncs", "fsync and fdatasync"),
                             ("rings", "io_uring_enter"), ("reads", "reads"))
    ]
    there = by_server(runs, "correctness", "all_there", "Three correctness programs", 0,
                      note="1: all requests that were answered are there after kill -9 and a "
                           "restart, with and without rewrites meanwhile.")
    parts = [*four_plots(runs), *tables, *calls, there]
    return Report("Study 002: AOFUring", paper["about"], parts, claims(runs, paper), DIFFERENCES)


def case_of(way):
    return f"SET, {LOAD}, {way}"


def four_plots(runs):
    if not runs.cases("aof"):
        return [Text(f"The four plots: no figures, because {runs.why_missing('aof')}.")]
    found = []
    for metric, title, unit in (("ops_s", "Requests per second", "requests/s"),
                                ("cpu_us", "CPU", "µs per request"),
                                ("resident_mb", "Memory", "MB resident"),
                                ("p99_ms", "Latency, 99th percentile", "ms")):
        groups = []
        for way in [*WAYS, *RING]:
            values = {server: (NAMES[server], runs.median("aof", server, case_of(way), metric))
                      for server in runs.servers("aof")
                      if way not in RING or server == "kvasir"}
            groups.append((way.replace(" by ", "\nby "), values))
        found.append(Plot(title, plots.bars(groups, unit, log=metric == "p99_ms"),
                          f"SET by {LOAD}."))
    return found


def claims(runs, paper):
    def median(server, way, metric):
        return runs.median("aof", server, case_of(way), metric)

    found = []
    reach = {way: ratio(median("kvasir", f"{way} by io_uring", "ops_s"),
                        median("kvasir", "everysec", "ops_s")) for way in ("everysec", "always")}
    ring = reach["everysec"]
    found.append(Claim(
        "Written by io_uring, the file costs no more throughput than everysec.",
        "as everysec", judged(None if ring is None else ring >= 0.95),
        "To Kvasir's own everysec by system calls: everysec by io_uring "
        f"{show(ring, 2)}, always by io_uring {show(reach['always'], 2)}. The study's replies "
        "leave before the data is on disk; Kvasir's always waits for it.",
        f"{show(ring, 2)} of everysec"))
    cost = ratio(median("kvasir", "everysec by io_uring", "cpu_us"),
                 median("kvasir", "everysec", "cpu_us"))
    dear = ratio(median("kvasir", "always by io_uring", "cpu_us"),
                 median("kvasir", "always", "cpu_us"))
    found.append(Claim(
        "It takes 2.4 times the CPU.", "2.4 times",
        UNMEASURED if cost is None else HOLDS if cost >= 2 else DIFFERS,
        f"CPU per request by io_uring to that by system calls: everysec {show(cost, 2)}, always "
        f"{show(dear, 2)}. Held to hold from 2 on.", f"{show(cost, 2)} times"))
    slow = {server: ratio(median(server, "always", "ops_s"), median(server, "everysec", "ops_s"))
            for server in PEERS}
    told = ", ".join(f"{NAMES[server]} {show(value, 2)}" for server, value in slow.items())
    redis = slow["redis"]
    found.append(Claim(
        "always is much slower than everysec.", "slower",
        judged(None if redis is None else redis < 0.8),
        f"Throughput of always to that of everysec: {told}. Held to hold below 0.8, for Redis.",
        show(slow["kvasir"], 2)))
    there = runs.cases("correctness")
    found.append(Claim(
        "Three programs find all data after a restart.", "all there",
        HOLDS if there else UNMEASURED,
        f"{len(there)} runs of them." if there else runs.why_missing("correctness") + ".",
        f"{len(there)} of {len(there)}" if there else "–"))
    return found


DIFFERENCES = [
    ("Times take seconds, not 4,000,000 requests.",
     "bench aof measures for a time; 20 s a case in the full run are about as many."),
    ("RDB is measured as a server without the file, named off.",
     "The study's runs of RDB took no snapshot within a run either, as far as we know."),
    ("The server has one core, and its writes to the disk share the machine.",
     "The disk is this machine's, named above; an fsync costs what it costs there."),
    ("System calls are counted by strace in a run of their own.", "As in the study."),
    ("The study's own server is not measured.", "It is a fork of Redis, which we do not build."),
]
