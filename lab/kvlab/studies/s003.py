"""Study 003: does Redis scale? redis-benchmark, YCSB, the Universal Scalability Law, 2^(6-3)."""

import random
from pathlib import Path

import pandas as pd

from kvlab import factorial, load, plots, usl
from kvlab.cells import Cell
from kvlab.machine import Missing, server_cores
from kvlab.servers import Group, Server
from kvlab.stats import median_interval, spread
from kvlab.studies.common import (
    DIFFERS, HOLDS, NAMES, PEERS, UNMEASURED, Claim, Plot, Report, Runs, Table, Text, by_server,
    judged, percent, show, show_spread,
)

GENERATORS = {"D": "AB", "E": "AC", "F": "BC"}
FACTORS = {
    "A": ("clustering", "one server", "a cluster of three primaries"),
    "B": ("persistence", "none", "AOF, everysec"),
    "C": ("overcommit_memory", "0", "1"),
    "D": ("pipelining", "none", "15"),
    "E": ("processor", "one core", "two cores"),
    "F": ("replication", "no replica", "a replica of each primary"),
}
THREADS = [1, *range(5, 101, 5)]
OVERCOMMIT = Path("/proc/sys/vm/overcommit_memory")
DESIGN_CLIENTS = 50
REPLICATES = 5


def cells(quick, seed):
    runs = 2 if quick else 3
    found = []
    for run in range(1, runs + 1):
        for server in PEERS:
            found.append(benchmark_cell(server, run))
            found.append(threads_cell(server, run, quick, seed + run))
            if run == 1 or not quick:
                found.append(workloads_cell(server, run, quick, seed + run))
    # The rows of a design in random order, so that a drift of the machine meets all alike.
    for run in range(1, REPLICATES + 1):
        order = [(server, row) for row in range(8) for server in PEERS]
        random.Random(seed + run).shuffle(order)
        found += [design_cell(server, row, run, quick, seed + run) for server, row in order]
    return found


def benchmark_cell(server, run):
    options = {"requests": 10_000, "clients": 50, "value_bytes": 3}

    def measure(context):
        with Server(context.kind(server), server_cores(1)) as one:
            rows = load.redis_benchmark(one, 10_000, 50, 3)
        return [{"server": server, "case": row.pop("test"), **row} for row in rows]

    return Cell(f"003/benchmark/{server}/all/{run}", measure, 8, options)


def records(quick):
    return 20_000 if quick else 100_000


def fill(one, quick, seed):
    load.run(one, clients=16, records=records(quick), load=1, seed=seed)


def threads_cell(server, run, quick, seed):
    seconds = 0.6 if quick else 1.5
    options = {"mix": load.STUDY_MIX, "records": records(quick), "fields": 10, "field_bytes": 100,
               "distribution": "zipfian", "scan_max": 100, "seconds": seconds,
               "generator": load.GENERATOR}

    def measure(context):
        found = []
        with Server(context.kind(server), server_cores(1)) as one:
            fill(one, quick, seed)
            for threads in THREADS:
                figures = load.measured(one, seconds, clients=threads, mix=load.STUDY_MIX,
                                        records=records(quick), distribution="zipfian",
                                        seed=seed + threads, warmup=seconds / 4)
                found.append({"server": server, "case": str(threads), "threads": threads,
                              **figures})
        return found

    expected = 3 + len(THREADS) * (seconds * 1.3 + 0.1)
    return Cell(f"003/threads/{server}/1-100/{run}", measure, expected, options)


def workloads_cell(server, run, quick, seed):
    seconds = 0.8 if quick else 2
    options = {"workloads": "A to F as YCSB defines them", "threads": 16, "seconds": seconds,
               "records": records(quick), "generator": load.GENERATOR}

    def measure(context):
        found = []
        for name, (mix, distribution) in load.WORKLOADS.items():
            with Server(context.kind(server), server_cores(1)) as one:
                fill(one, quick, seed)
                figures = load.measured(one, seconds, clients=16, mix=mix,
                                        records=records(quick), distribution=distribution,
                                        seed=seed, warmup=seconds / 4)
                found.append({"server": server, "case": name, **figures})
        return found

    return Cell(f"003/workloads/{server}/A-F/{run}", measure, 6 * (seconds * 1.3 + 2), options)


def design_cell(server, row, run, quick, seed):
    signs = factorial.sign_table("ABC", GENERATORS)[row]
    seconds = 0.6 if quick else 1
    options = {FACTORS[name][0]: FACTORS[name][2 if sign > 0 else 1]
               for name, sign in signs.items()}

    def measure(context):
        kind = context.kind(server)
        cores = server_cores(2 if signs["E"] > 0 else 1)
        aof = ["--appendonly", "yes", "--appendfsync", "everysec"] if signs["B"] > 0 else []
        primaries = 3 if signs["A"] > 0 else 1
        # Kvasir has a worker for each of its cores by default, its peers have one.
        workers = len(cores) if server == "kvasir" else 1
        with Overcommit(signs["C"] > 0), \
                Group(kind, cores, primaries, signs["F"] > 0, aof, workers) as group:
            load.run(group, clients=4, records=100_000, requests=1000, pipeline=100, mix="set=1",
                     distribution="sequential", field_size=100, seed=seed)
            figures = load.measured(group, seconds, clients=DESIGN_CLIENTS, records=100_000,
                                    mix="get=50,set=50", field_size=100, seed=seed,
                                    pipeline=15 if signs["D"] > 0 else 1, warmup=seconds / 4)
        return [{"server": server, "case": str(row), "row": row, **figures}]

    return Cell(f"003/design/{server}/row{row}/{run}", measure, 4 + 1.3 * seconds, options)


class Overcommit:
    """Sets vm.overcommit_memory for the whole machine, and back again."""

    def __init__(self, is_on):
        self.wanted = "1" if is_on else "0"

    def __enter__(self):
        self.before = OVERCOMMIT.read_text().strip()
        self.set(self.wanted)

    def __exit__(self, *_):
        self.set(self.before)

    def set(self, value):
        if OVERCOMMIT.read_text().strip() == value:
            return
        try:
            OVERCOMMIT.write_text(value)
        except OSError as error:
            raise Missing(f"vm.overcommit_memory cannot be set to {value}: {error}") from None


def report(lines, papers, _machine):
    runs, paper = Runs(lines, "003"), papers["003"]
    fits = fit_all(runs)
    designs = analyse_all(runs)
    parts = [
        by_server(runs, "benchmark", "rps", "redis-benchmark: requests per second", 0,
                  note="10,000 requests of each kind, 50 clients, values of 3 B; the server on "
                       "one core, the load on another. At 10,000 requests a kind takes a tenth of "
                       "a second: the spread is wide."),
        *plots_of_threads(runs, fits),
        table_of_fits(fits, runs),
        table_of_latencies(runs),
        by_server(runs, "threads", "resident_mb", "Memory over threads, MB resident", 0,
                  cases=["1", "25", "50", "75", "100"], first="threads"),
        by_server(runs, "threads", "cpu_percent", "Server CPU over threads, % of one core", 0,
                  cases=["1", "5", "25", "50", "75", "100"], first="threads"),
        by_server(runs, "workloads", "ops_s", "YCSB A to F, 16 threads: operations per second", 0,
                  first="workload"),
        *plots_of_workloads(runs),
        Text(SCAN_NOTE),
        sign_table_of(runs), *[table_of_design(name, found) for name, found in designs.items()],
        plot_of_designs(designs),
        table_of_paper(paper),
    ]
    parts = [part for part in parts if part is not None]
    return Report("Study 003: scalability of Redis", paper["about"], parts,
                  claims(runs, fits, designs, paper), DIFFERENCES)


SCAN_NOTE = (
    "The oddity of YCSB's scans on Redis: Redis has no order of keys, so YCSB's binding keeps a "
    "sorted set _indices of all keys, with a hash of the key as score. A scan that begins at a key "
    "is a ZRANGEBYSCORE from that key's hash on, and one HGETALL for each key found. So it "
    "returns records in the order of a hash, which is no range of keys; all inserts and scans meet "
    "in one key, which no cluster and no number of cores divides; and one scan of up to 100 "
    "records is up to 101 calls in a row. Throughput of a mix with scans counts a scan as one "
    "operation. go-ycsb's binding refuses scans altogether."
)


def series_of(runs, part, metric, x="threads"):
    found = {}
    frame = runs.part(part)
    if frame.empty or metric not in frame:
        return found
    for server in runs.servers(part):
        rows = frame[frame["server"] == server].groupby(x)[metric]
        median, low, high = rows.median(), rows.min(), rows.max()
        found[server] = {"label": NAMES[server], "x": list(median.index), "y": list(median),
                         "low": list(low), "high": list(high)}
    return found


def plots_of_threads(runs, fits):
    series = series_of(runs, "threads", "ops_s")
    if not series:
        return [Text(f"Threads: no figures, because {runs.why_missing('threads')}.")]
    grid = list(range(1, 101))
    bands = {}
    for server, fit in fits.items():
        low, high = fit.band_at(grid)
        bands[server] = {"x": grid, "y": list(fit.at(grid)), "low": list(low), "high": list(high)}
        series[server]["style"] = ""
    found = [Plot("Throughput over threads, with the law's fit and its band of 95 %",
                  plots.lines(series, "threads", "operations/s", bands=bands),
                  "50 % read, 20 % scan, 15 % update, 15 % insert.")]
    for kind in ("read", "update", "insert", "scan"):
        series = series_of(runs, "threads", f"{kind}_mean_us")
        found.append(Plot(f"Mean latency of {kind}",
                          plots.lines(series, "threads", "µs")))
    for metric, title, unit in (("cpu_percent", "Server CPU", "% of one core"),
                                ("resident_mb", "Memory", "MB resident")):
        found.append(Plot(f"{title} over threads",
                          plots.lines(series_of(runs, "threads", metric), "threads", unit)))
    return found


def table_of_latencies(runs, threads="50"):
    """By operation: mean and the slowest of a hundred."""
    servers = runs.servers("threads")
    if not servers:
        return None
    rows = []
    for kind in ("read", "update", "insert", "scan"):
        for metric, what in (("mean_us", "mean"), ("p99_us", "99th percentile")):
            row = {"operation": f"{kind}, {what}"}
            for server in servers:
                values = runs.values("threads", server, threads, f"{kind}_{metric}")
                row[NAMES[server]] = show_spread(values, 0)
            rows.append(row)
    return Table(f"Latency by operation at {threads} threads, µs", pd.DataFrame(rows))


def plots_of_workloads(runs):
    cases = runs.cases("workloads")
    if not cases:
        return []
    groups = [(case, {server: (NAMES[server], runs.median("workloads", server, case, "ops_s"))
                      for server in runs.servers("workloads")}) for case in cases]
    return [Plot("YCSB A to F", plots.bars(groups, "operations/s"), "16 threads, medians.")]


def fit_all(runs):
    frame, found = runs.part("threads"), {}
    for server in runs.servers("threads"):
        rows = frame[frame["server"] == server]
        try:
            found[server] = usl.fit(rows["threads"], rows["ops_s"])
        except ValueError:
            continue
    return found


def show_band(fit, name, value, decimals=None):
    low, high = fit.bands[name]
    return f"{number(value, decimals)} ({number(low, decimals)} to {number(high, decimals)})"


def number(value, decimals=None):
    """A peak far beyond what was measured is none that this machine could show."""
    return "none" if value > 1e12 else show(value, decimals)


def show_peak(fit):
    most = 10 * THREADS[-1]
    texts = [f"over {most:,}" if value > most else show(value, 0)
             for value in (fit.peak_at, *fit.bands["peak_at"])]
    return f"{texts[0]} ({texts[1]} to {texts[2]})"


def table_of_fits(fits, runs):
    if not fits:
        return Text(f"The law was not fitted, because {runs.why_missing('threads')}.")
    rows = []
    for server, fit in fits.items():
        rows.append({
            "server": NAMES[server],
            "lambda, ops/s": show_band(fit, "rate", fit.rate),
            "sigma": show_band(fit, "sigma", fit.sigma),
            "kappa": show_band(fit, "kappa", fit.kappa),
            "peak at threads": show_peak(fit),
            "peak, ops/s": show_band(fit, "peak", fit.peak, 0),
            "R²": show(fit.r_squared, 3),
        })
    note = ("X(N) = lambda N / (1 + sigma (N-1) + kappa N (N-1)), least squares over all runs; in "
            "brackets bands of 95 % by a bootstrap of the residuals. The paper's sigma: 0.4 to "
            "0.77. A peak beyond 100 threads is outside of what was measured.")
    return Table("The Universal Scalability Law", pd.DataFrame(rows), note)


def sign_table_of(runs):
    rows = []
    for at, signs in enumerate(factorial.sign_table("ABC", GENERATORS)):
        row = {"row": at + 1} | {name: "+" if sign > 0 else "−" for name, sign in signs.items()}
        for server in runs.servers("design"):
            found = spread(runs.values("design", server, str(at), "ops_s"))
            row[f"{NAMES[server]}, ops/s"] = f"{found.median:,.0f} ± {found.half_percent:.0f} %" \
                if found else "–"
        rows.append(row)
    levels = "; ".join(f"{name} {what}: − {low}, + {high}"
                       for name, (what, low, high) in FACTORS.items())
    note = (f"{levels}. Generators D=AB, E=AC, F=BC. Medians of the replicates, ± half "
            "the distance from smallest to largest. Half GET and half SET of 100 B, 50 clients.")
    return Table("The design 2^(6-3) and what was measured", pd.DataFrame(rows), note)


def analyse_all(runs):
    found = {}
    for server in runs.servers("design"):
        rows = [runs.values("design", server, str(row), "ops_s") for row in range(8)]
        count = min(map(len, rows))
        found[server] = factorial.analyse([row[:count] for row in rows], "ABC", GENERATORS) \
            if count else f"of its rows {[at + 1 for at in range(8) if not rows[at]]} there are " \
                          f"no figures: {runs.why_missing('design')}"
    return found


def table_of_design(server, found):
    title = f"Effects and shares of variation: {NAMES[server]}"
    if isinstance(found, str):
        return Text(f"{title}: not computed, since {found}.")
    rows = []
    for effect in found.effects:
        what = FACTORS.get(effect.name, ("the third-order product",))[0]
        rows.append({
            "factor": f"{effect.name} {what}", "same column as": " ".join(effect.aliases),
            "effect, ops/s": show(effect.value, 0),
            "95 %": f"{show(effect.low, 0)} to {show(effect.high, 0)}",
            "sum of squares": f"{effect.sum_of_squares:.3e}", "share": percent(effect.share),
        })
    rows.append({"factor": "error", "same column as": "", "effect, ops/s": "",
                 "95 %": f"s = {show(found.error_deviation, 0)}",
                 "sum of squares": f"{found.error_sum_of_squares:.3e}",
                 "share": percent(found.error_share)})
    note = (f"Mean {found.mean:,.0f} ops/s of 8 rows with {found.replicates} replicates. An effect "
            "is half of what going from − to + changes. In this design every factor shares its "
            "column with two products of two others, which it cannot be told from.")
    return Table(title, pd.DataFrame(rows), note)


def plot_of_designs(designs):
    known = {server: found for server, found in designs.items() if not isinstance(found, str)}
    if not known:
        return None
    names = [effect.name for effect in next(iter(known.values())).effects]
    groups = []
    for name in [*names, "error"]:
        label = f"{name} {FACTORS[name][0]}" if name in FACTORS else name
        shares = {}
        for server, found in known.items():
            by_name = {effect.name: effect.share for effect in found.effects}
            shares[server] = (NAMES[server], by_name.get(name, found.error_share))
        groups.append((label, shares))
    return Plot("Shares of variation", plots.bars(groups, "% of all variation"),
                "The paper: pipelining has 95 % of it.")


def table_of_paper(paper):
    """The paper's own rows, computed again by the same function."""
    if not paper.get("rows"):
        return Text("The paper's table 2: its eight observations are not in this repository "
                    "(lab/papers/studies.json, 003.rows), so it is not computed again here. The "
                    "function that would do it is tested against two textbook designs with known "
                    "answers.")
    found = factorial.analyse(paper["rows"], "ABC", GENERATORS)
    rows = [{"factor": effect.name, "effect": repr(effect.value),
             "sum of squares": repr(effect.sum_of_squares), "share %": repr(effect.share)}
            for effect in found.effects]
    return Table("The paper's table 2, from its own rows", pd.DataFrame(rows))


def claims(runs, fits, designs, paper):
    found = []
    sigma = {server: fit.sigma for server, fit in fits.items()}
    redis = sigma.get("redis")
    shown = "; ".join(f"{NAMES[name]} {show_band(fit, 'sigma', fit.sigma)}"
                      for name, fit in fits.items())
    kvasir = show_band(fits["kvasir"], "sigma", fits["kvasir"].sigma) if "kvasir" in fits else "–"
    found.append(Claim(
        "Contention limits Redis: sigma lies between 0.4 and 0.77.", "sigma 0.4 to 0.77",
        judged(0.4 <= redis <= 0.77) if redis is not None else UNMEASURED,
        f"Sigma here: {shown or runs.why_missing('threads')}. The clients share a machine with "
        "the server, and its load comes from one thread.", f"sigma {kvasir}"))
    found.append(peak_claim(runs, fits))
    shares = {}
    for server, design in designs.items():
        if not isinstance(design, str):
            shares[server] = {effect.name: effect.share for effect in design.effects}
    pipelining = {server: values["D"] for server, values in shares.items()}
    told = "; ".join(f"{NAMES[name]} {percent(value)}" for name, value in pipelining.items())
    redis = pipelining.get("redis")
    found.append(Claim(
        "Pipelining explains 95 % of the variation of throughput.", "95 %",
        UNMEASURED if redis is None else HOLDS if redis >= 90 else DIFFERS,
        f"Share of factor D here: {told or runs.why_missing('design')}. Held to hold from 90 % on, "
        "for Redis.", percent(pipelining.get("kvasir"))))
    largest = {server: max((name for name in values if name != "D"), key=values.get)
               for server, values in shares.items()}
    told = "; ".join(f"{NAMES[server]} {FACTORS.get(name, (name,))[0]} "
                     f"{percent(shares[server][name])}" for server, name in largest.items())
    known = shares.get("redis")
    small = None if known is None else all(known[name] < 5 for name in known if name != "D")
    found.append(Claim(
        "Clustering, persistence, overcommit_memory, processor and replication hardly matter.",
        "5 % together", judged(small),
        f"The largest of the other shares: {told or 'none known'}. Held to hold if each is below "
        "5 % for Redis.",
        f"{FACTORS.get(largest['kvasir'], (largest['kvasir'],))[0]} "
        f"{percent(shares['kvasir'][largest['kvasir']])}" if "kvasir" in shares else "–"))
    found.append(cores_claim(shares))
    return found


def peak_claim(runs, fits):
    frame = runs.part("threads")
    parts, kvasir = [], "–"
    is_early = None
    for server in fits:
        rows = frame[frame["server"] == server]
        best = int(rows.groupby("threads")["ops_s"].median().idxmax())
        last = rows[rows["threads"] == 100]["ops_s"]
        top = rows[rows["threads"] == best]["ops_s"]
        low, high = median_interval(last) if len(last) else (0, 0)
        parts.append(f"{NAMES[server]} highest at {best} threads ({show(top.median(), 0)}/s), at "
                     f"100 {show(last.median(), 0)}/s ({show(low, 0)} to {show(high, 0)})")
        if server == "redis":
            is_early = bool(last.median() < 0.97 * top.median())
        if server == "kvasir":
            kvasir = f"highest at {best} threads"
    return Claim("Throughput stops to grow with the number of threads, and then falls.",
                 "a peak", judged(is_early),
                 ("; ".join(parts) or runs.why_missing("threads")) + ". Held to hold if Redis has "
                 "lost more than 3 % of its peak at 100 threads.", kvasir)


def cores_claim(shares):
    values = {name: parts["E"] for name, parts in shares.items()}
    redis = values.get("redis")
    told = "; ".join(f"{NAMES[name]} {percent(value)}" for name, value in values.items())
    return Claim("A second core does not help one server, since one thread executes.", "one thread",
                 UNMEASURED if redis is None else HOLDS if redis < 5 else DIFFERS,
                 f"Share of factor E: {told or 'unknown'}. On two cores the load shares the second "
                 "one, so a gain of more workers cannot show fully; see scaling.",
                 percent(values.get("kvasir")))


DIFFERENCES = [
    ("The load generator is our own (lab/programs/load.c).",
     "YCSB's Redis binding is not on Maven Central and go-ycsb's binding refuses scans, of which "
     "the study's mix has 20 %. It does the same calls as YCSB's binding for Java."),
    ("Server and load share one machine, a core each.",
     "There is no second machine. The network is the loopback, so latency is lower than the "
     "study's and the load's core limits throughput where servers are fast."),
    ("Factor A is a cluster of three primaries, factor F adds a replica to each primary.",
     "The study's levels of A are three primaries with three replicas or one server, which leaves "
     "replication's own level open. With both at + the cluster has three primaries and three "
     "replicas."),
    ("The design's response is half GET, half SET of 100 B on 100,000 keys by 50 clients.",
     "The study does not fix it in what we have of it."),
    ("Five replicates in random order, with an error term.", "The study had one run per row."),
    ("Six servers of a cluster share one or two cores.", "A machine of its own each is not here."),
    ("redis-server 7.0.15, Valkey 9.1.2 and Kvasir.", "They are today's."),
]
