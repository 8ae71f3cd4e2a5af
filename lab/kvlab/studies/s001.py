"""Study 001: Memcached, Redis and Spark's RDD; system calls, sizes, PageRank."""

import re
import signal
import subprocess
import time

from kvlab import bench, load, plots
from kvlab.cells import Cell
from kvlab.machine import Missing, server_cores, tool
from kvlab.servers import Server
from kvlab.stats import ratio
from kvlab.studies.common import (
    DIFFERS, HOLDS, NAMES, PEERS, UNMEASURED, Claim, Plot, Report, Runs, Text, by_server,
    show,
)

REQUESTS = 5_000
ATTACH_S = 0.5
SIZES = ["10 B", "100 B", "1 KB", "10 KB", "100 KB"]
GRAPHS = [
    *(("pagerank", server, 4, 90) for server in (*PEERS, "memcached")),
    *(("analytics", server, 32, 240) for server in ("redis", "kvasir")),
    ("spark", "kvasir", 140, 600),
]
"""Scenario, server, seconds with --quick and without."""


def cells(quick, seed):
    found = []
    times = ["--seconds", 0.25 if quick else 0.5]
    for run in range(1, (1 if quick else 3) + 1):
        for server in [*PEERS, "memcached"]:
            for command in ("get", "set"):
                found.append(calls_cell(server, command, run))
        for server in PEERS:
            found.append(bench.cell("001", "objects", "ring", server, run,
                                    15 if quick else 20, *times))
        for server in ("memcached", "kvasir"):
            found.append(bench.cell("001", "memcached", "memcached", server, run,
                                    17 if quick else 28, *times))
    return found + [graph_cell(*what, quick) for what in GRAPHS]


def graph_cell(scenario, server, quick_s, full_s, quick):
    """Once: the graph is large, and each figure is a mean of iterations."""
    size = [] if not quick else ["--quick"] if scenario == "pagerank" else ["--keys", 200_000]
    return bench.cell("001", scenario, scenario, server, 1, quick_s if quick else full_s, *size)


def calls_cell(server, command, run):
    options = {"requests": REQUESTS, "value_bytes": 10, "clients": 1}

    def measure(context):
        with Server(context.kind(server), server_cores(1)) as one:
            if server == "memcached":
                ask_memcached(one.port, "set", 1)
            counted = count_calls(one, lambda: ask(one, command))
        total = sum(counted.values())
        names = {f"calls_{name}": count / REQUESTS for name, count in counted.items()}
        return [{"server": server, "case": command, "calls": total / REQUESTS, **names}]

    return Cell(f"001/calls/{server}/{command}/{run}", measure, 4, options)


def ask(one, command):
    if one.kind.name == "memcached":
        ask_memcached(one.port, command, REQUESTS)
    else:
        load.run(one, clients=1, requests=REQUESTS, mix=f"{command}=1", records=1, field_size=10)


def ask_memcached(port, command, count):
    import socket

    request = b"get k\r\n" if command == "get" else b"set k 0 0 10\r\n0123456789\r\n"
    end = b"END\r\n" if command == "get" else b"STORED\r\n"
    with socket.create_connection(("127.0.0.1", port)) as stream:
        stream.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        for _ in range(count):
            stream.sendall(request)
            reply = b""
            while not reply.endswith(end):
                part = stream.recv(4096)
                if not part:
                    raise Missing("memcached closed the connection")
                reply += part


def count_calls(one, work) -> dict:
    """System calls of all threads of a server while there is work, by name."""
    out = one.dir / "calls"
    strace = subprocess.Popen([tool("strace"), "-f", "-c", "-o", str(out), "-p",
                               str(one.process.pid)], stderr=subprocess.PIPE)
    try:
        time.sleep(ATTACH_S)
        if strace.poll() is not None:
            raise Missing(f"strace ended: {strace.stderr.read().decode().strip()[:200]}")
        work()
    finally:
        if strace.poll() is None:
            strace.send_signal(signal.SIGINT)
        strace.wait()
    return parse_strace(out.read_text())


def parse_strace(text) -> dict:
    """Calls by name, between the lines of the table."""
    found = {}
    row = re.compile(r"^\s*[\d.]+\s+[\d.]+\s+\d+\s+(\d+)\s+(?:\d+\s+)?(\w+)$")
    for line in text.splitlines():
        match = row.match(line)
        if match and match.group(2) != "total":
            found[match.group(2)] = int(match.group(1))
    if not found:
        raise Missing("strace counted nothing")
    return found


def report(lines, papers, _machine):
    runs, paper = Runs(lines, "001"), papers["001"]
    parts = [
        by_server(runs, "calls", "calls", "System calls of the server per request", 2,
                  paper={"get": "3 memcached, 6 Redis"}, first="call",
                  note="One client that waits for each reply, objects of 10 B; by strace, which "
                       "slows the server down."),
        shares_of_kernel(runs),
        *figure_5(runs),
        by_server(runs, "memcached", "trip_us", "memcached's protocol: round trip, µs", 2,
                  note="One client that waits; workers are threads of the server."),
        by_server(runs, "memcached", "server_us", "memcached's protocol: server CPU, µs per call",
                  2),
        by_server(runs, "analytics", "iteration_s", "PageRank: seconds per iteration", 4,
                  cases=[case for case in runs.cases("analytics")
                         if not case.startswith(("EXPORT", "SCAN"))],
                  note="Clients and scripts are measured on a part of the graph and grown to all "
                       "of it, since the whole would take hours: bench analytics says so too."),
        by_server(runs, "pagerank", "iteration_s", "PageRank by a client: seconds per iteration", 4,
                  note="The client computes; neighbours and ranks are fetched and ranks written in "
                       "every iteration, a thousand nodes to a call. Of an R-MAT graph of 5.1 "
                       "million edges, a tenth of that with --quick."),
        by_server(runs, "pagerank", "server_s", "The same: server CPU, s per iteration", 4),
        Text("Tables 1 and 2 of the study count cycles, instructions and misses of caches. This "
             "is a virtual machine without those counters, so they cannot be repeated here; "
             "server CPU and the kernel's share stand in for them."),
        by_server(runs, "spark", "iteration_s", "PageRank beside Spark: seconds per iteration", 4,
                  cases=[case for case in runs.cases("spark") if "one of" not in case],
                  note="PySpark on two cores: its example's joins, measured on a million edges at "
                       "most and grown to all, and blocks of rows in numpy."),
        by_server(runs, "spark", "seconds", "One record of many: seconds", 6,
                  cases=[case for case in runs.cases("spark") if "one of" in case],
                  note="Of 10 B, by redis-py one after the other, and by RDD.lookup of records "
                       "that are hashed by key."),
        Text("Figures 2 to 4 compare clusters of machines; here is one machine, and Spark has two "
             "of its cores."),
    ]
    return Report("Study 001: analytics and objects in memory", paper["about"], parts,
                  claims(runs, paper), DIFFERENCES)


def cases_of(runs, start):
    return [case for case in runs.cases("objects") if case.startswith(start)]


def shares_of_kernel(runs):
    cases = [case for case in runs.cases("objects")
             if case.startswith(("GET", "SET")) and case.endswith("TCP")]
    return by_server(runs, "objects", "kernel_share", "Share of the server's CPU in the kernel, %",
                     0, cases=cases, paper={case: "57 to 73" for case in cases},
                     note="From /proc, in ticks of 10 ms.")


def figure_5(runs):
    parts = []
    for way in ("TCP", "unix socket", "ring"):
        for call in ("MGET", "MSET"):
            cases = [case for case in cases_of(runs, call) if case.endswith(f", {way}")]
            series = {}
            for server in runs.servers("objects"):
                points = [(size_of(case), runs.median("objects", server, case, "objects_s"))
                          for case in cases]
                points = [(size, value) for size, value in points if value is not None]
                if points:
                    series[server] = {"label": NAMES[server], "x": [p[0] for p in points],
                                      "y": [p[1] for p in points]}
            if series:
                parts.append(Plot(f"Figure 5: {call} over {way}",
                                  plots.lines(series, "bytes of an object", "objects/s",
                                              log_x=True, log_y=False),
                                  "1,000 objects in one call, fewer where they are large."))
    return parts or [Text(f"Figure 5: no figures, because {runs.why_missing('objects')}.")]


def size_of(case) -> int:
    number, unit = re.search(r", (\d+) (B|KB)", case).groups()
    return int(number) * (1000 if unit == "KB" else 1)


def claims(runs, paper):
    found = []
    for server, count in paper["calls"].items():
        own = runs.median("calls", server, "get", "calls")
        kvasir = runs.median("calls", "kvasir", "get", "calls")
        found.append(Claim(
            f"{NAMES[server]} makes {count} system calls for a request.", str(count),
            UNMEASURED if own is None else HOLDS if abs(own - count) < 0.5 else DIFFERS,
            f"Here {show(own, 2)} for a get of 10 B by one client."
            if own is not None else runs.why_missing("calls"),
            f"{show(kvasir, 2)} (io_uring)"))
    shares = {server: runs.median("objects", server, "GET 10 B, TCP", "kernel_share")
              for server in PEERS}
    told = ", ".join(f"{NAMES[server]} {show(value, 0)} %" for server, value in shares.items())
    redis = shares["redis"]
    found.append(Claim(
        "57 to 73 % of the time are spent in the kernel.", "57 to 73 %",
        UNMEASURED if redis is None else HOLDS if 50 <= redis <= 85 else DIFFERS,
        f"GET of 10 B over TCP: {told}. Held to hold from 50 to 85 % for Redis.",
        f"{show(shares['kvasir'], 0)} %"))
    slow = {server: ratio(runs.median("objects", server, "GET 100 KB, TCP", "trip_us"),
                          runs.median("objects", server, "GET 10 B, TCP", "trip_us"))
            for server in PEERS}
    near = {server: ratio(runs.median("objects", server, "GET 1 KB, TCP", "trip_us"),
                          runs.median("objects", server, "GET 10 B, TCP", "trip_us"))
            for server in PEERS}
    mem = ratio(runs.median("memcached", "memcached", "get of 1, 10 KB, 1 worker(s)", "trip_us"),
                runs.median("memcached", "memcached", "get of 1, 10 B, 1 worker(s)", "trip_us"))
    own = ratio(runs.median("memcached", "kvasir", "get of 1, 10 KB, 1 worker(s)", "trip_us"),
                runs.median("memcached", "kvasir", "get of 1, 10 B, 1 worker(s)", "trip_us"))
    found.append(Claim(
        "An object of 10 KB takes hardly longer than one of 10 B.", "hardly a difference",
        UNMEASURED if mem is None else HOLDS if mem < 1.35 else DIFFERS,
        f"Round trip of 10 KB to that of 10 B: memcached {show(mem, 2)}. 1 KB to 10 B over TCP: "
        + ", ".join(f"{NAMES[server]} {show(value, 2)}" for server, value in near.items())
        + "; 100 KB to 10 B: "
        + ", ".join(f"{NAMES[server]} {show(value, 1)}" for server, value in slow.items())
        + ". Held to hold below 1.35 for memcached.", f"{show(own, 2)} times (its port)"))
    found += pagerank_claims(runs)
    return found + spark_claims(runs)


def spark_claims(runs):
    """Of the most records that both were asked for."""
    graph, blocks, example = (
        runs.median("spark", "kvasir", case, "iteration_s")
        for case in ("GRAPH.PAGERANK", "Spark, blocks of numpy", "Spark, its example"))
    cases = [case for case in runs.cases("spark") if case.startswith("RDD.lookup")]
    case = cases[-1] if cases else ""
    lookup = runs.median("spark", "kvasir", case, "seconds")
    get = runs.median("spark", "kvasir", case.replace("RDD.lookup", "GET by redis-py"), "seconds")
    gain = ratio(blocks, graph)
    return [
        Claim("A get of an RDD's element costs the start of a job.", "0.8 ms",
              UNMEASURED if lookup is None else HOLDS if lookup > 0.0004 else DIFFERS,
              f"PySpark's RDD.lookup: {show(lookup * 1000)} ms; held to hold above 0.4 ms."
              if lookup is not None else runs.why_missing("spark"),
              "–" if get is None else f"{show(get * 1000)} ms (GET)"),
        Claim("Spark is the fastest of the three at PageRank.", "1.3 to 14 times Memcached",
              UNMEASURED if gain is None else DIFFERS if gain > 1 else HOLDS,
              f"Seconds per iteration: Spark {show(example)} by its example, {show(blocks)} by "
              "blocks of numpy." if gain is not None else runs.why_missing("spark"),
              "–" if gain is None else f"{show(graph)} s: {show(gain)} times Spark's best"),
    ]


def pagerank_claims(runs):
    graph = runs.median("analytics", "kvasir", "GRAPH.PAGERANK", "iteration_s")
    client = runs.median("analytics", "redis", "redis-py", "iteration_s")
    script = runs.median("analytics", "redis", "a script in the server", "iteration_s")
    found = []
    for base, what, paper, bar in ((client, "a client of Redis", "up to 12 times", 12),
                                   (script, "a script in Redis", "400 times", 400)):
        gain = ratio(base, graph)
        found.append(Claim(
            f"Computing where the data is beats {what}: an iteration of PageRank.",
            f"{paper} (Spark)", UNMEASURED if gain is None else HOLDS if gain >= bar else DIFFERS,
            "Not Spark but Kvasir's GRAPH.PAGERANK beside Redis on the same graph: "
            f"{show(graph)} s to {show(base)} s an iteration."
            if gain is not None else runs.why_missing("analytics"),
            "–" if gain is None else f"{show(gain)} times"))
    return found


DIFFERENCES = [
    ("Spark is PySpark 4.1 on two cores of one machine.", "The study's was Spark 0.9 in Scala on "
     "up to 16. Claims that computing where the data is beats clients and scripts are asked of "
     "GRAPH.PAGERANK, and are marked so."),
    ("One machine.", "The study's figures over several nodes cannot be repeated on it."),
    ("memcached 1.6.18 and redis-server 7.0.15; the study had 1.4.15 and a Redis of 2014.",
     "They are what a user has today. Redis 7 reads and writes fewer times for a request."),
    ("No counters of the processor.", "The machine is virtual."),
    ("--quick takes graphs of 100,000 edges.", "Minutes, not hours."),
]
