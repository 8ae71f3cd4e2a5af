"""Scaling inside one server: workers from one to all cores, closed loop and open loop."""

import pandas as pd

from kvlab import load, plots, usl
from kvlab.cells import Cell
from kvlab.machine import cores, load_cores, server_cores
from kvlab.servers import Server
from kvlab.stats import ratio
from kvlab.studies.common import (
    NAMES, PEERS, UNMEASURED, Claim, Plot, Report, Runs, Table, Text, by_server, judged, show,
)

CLIENTS_PER_CORE = 25
PIPELINES = [1, 16]
SHARES = [0.1, 0.3, 0.5, 0.7, 0.8, 0.9, 1.0, 1.1]
"""Of what the closed loop reached: the rates of the open loop."""
QUICK_SHARES = [0.3, 0.7, 0.9, 1.0]
USUAL = {"mix": "get=50,set=50", "field_size": 64, "distribution": "uniform"}


def worker_counts(most):
    """All up to 8, then doubling, and the machine's cores."""
    counts = [count for count in range(1, most + 1) if count <= 8 or count & (count - 1) == 0]
    return sorted({*counts, most})


def clients(cores):
    """Enough that no worker waits for one: 50 on two cores."""
    return CLIENTS_PER_CORE * cores


def named(workers):
    return "1 worker" if workers == 1 else f"{workers} workers"


def cells(quick, seed):
    found = []
    for run in range(1, (2 if quick else 3) + 1):
        for workers in worker_counts(len(cores())):
            for server in PEERS:
                found.append(cell(server, workers, run, quick, seed + run))
    return found


def cell(server, workers, run, quick, seed):
    seconds = 0.7 if quick else 1.5
    records = 100_000 if quick else 1_000_000
    shares = QUICK_SHARES if quick else SHARES
    options = {"clients": clients(len(cores())), "records": records, "seconds": seconds, **USUAL,
               "generator": load.GENERATOR, "load_cores": len(load_cores(workers))}

    def measure(context):
        found = []
        usual = {"clients": clients(len(cores())), "records": records, "seed": seed, **USUAL,
                 "cores": load_cores(workers)}
        with Server(context.kind(server), server_cores(workers), workers=workers) as one:
            load.run(one, clients=1, records=records, requests=-(-records // 100), pipeline=100,
                     mix="set=1", distribution="sequential", field_size=64, seed=seed)
            for pipeline in PIPELINES:
                figures = load.measured(one, seconds, pipeline=pipeline, warmup=seconds / 4,
                                        **usual)
                found.append({"server": server, "case": f"{named(workers)}, pipeline {pipeline}",
                              "kind": "closed", "workers": workers, "pipeline": pipeline,
                              **figures})
            top = found[0]["ops_s"]
            for share in shares:
                rate = round(share * top)
                figures = load.measured(one, seconds, rate=rate, warmup=seconds / 4, **usual)
                found.append({"server": server, "case": f"{named(workers)}, rate {share}",
                              "kind": "open", "workers": workers, "share": share, "rate": rate,
                              **figures})
        return found

    expected = (len(PIPELINES) + len(shares)) * (1.4 * seconds + 0.2) + 2
    return Cell(f"scaling/workers/{server}/{workers}/{run}", measure, expected, options)


def report(lines, papers, machine):
    runs = Runs(lines, "scaling")
    count = machine["cores"]
    about = (
        f"This machine has {count} cores. The load runs on those that the workers leave, at most "
        f"half; with more than {count - max(1, count // 4)} workers it shares some with them, so "
        "the last point of each curve is lower than on a machine with cores to spare"
        + (", and here that is every point but the first. The same command gives the full curve "
           "on a larger machine: workers 1, 2, 3 and so on to 8, then doubling."
           if count == 2 else "."))
    closed = [case for case in runs.cases("workers") if "pipeline" in case]
    parts = [
        by_server(runs, "workers", "ops_s", "Closed loop: operations per second", 0, cases=closed,
                  note=f"{clients(count)} clients, half GET and half SET of 64 B. Redis and Valkey with "
                       "io-threads, Kvasir with workers."),
        by_server(runs, "workers", "cpu_percent", "Closed loop: server CPU, % of one core", 0,
                  cases=closed),
        by_server(runs, "workers", "load_busy", "Closed loop: the load's CPU, % of one core", 0,
                  cases=closed,
                  note="Near 100 for each of its cores, the load is what is measured."),
        law(runs), *plots_of_closed(runs), *plots_of_open(runs),
    ]
    return Report("Scaling inside one server", about, parts, claims(runs, count), DIFFERENCES)


def closed(runs, server, pipeline):
    frame = runs.part("workers")
    return frame[(frame["server"] == server) & (frame["kind"] == "closed")
                 & (frame["pipeline"] == pipeline)]


def fit_of(runs, server, pipeline):
    """Of the numbers of workers that leave the load cores of its own; and why there is none."""
    rows = closed(runs, server, pipeline)
    rows = rows[rows["workers"] <= rows["workers"].max() / 2] if len(set(rows["workers"])) > 4 \
        else rows
    try:
        return usl.fit(rows["workers"], rows["ops_s"]), ""
    except ValueError as error:
        return None, str(error)


def plots_of_closed(runs):
    found = []
    for pipeline in PIPELINES if not runs.part("workers").empty else []:
        series, bands = {}, {}
        for server in runs.servers("workers"):
            by = closed(runs, server, pipeline).groupby("workers")["ops_s"]
            series[server] = {"label": NAMES[server], "x": list(by.median().index), "style": "",
                              "y": list(by.median()), "low": list(by.min()), "high": list(by.max())}
            fit, _ = fit_of(runs, server, pipeline)
            if fit:
                grid = list(range(1, 1 + int(by.median().index.max() / 2)))
                low, high = fit.band_at(grid)
                bands[server] = {"x": grid, "y": list(fit.at(grid)), "low": list(low),
                                 "high": list(high)}
        found.append(Plot(f"Closed loop, pipeline {pipeline}: throughput over workers",
                          plots.lines(series, "workers", "operations/s", bands=bands),
                          "With the law's fit and its band of 95 %, where one can be made."))
    return found


def law(runs):
    frame = runs.part("workers")
    if frame.empty:
        return Text(f"No figures, because {runs.why_missing('workers')}.")
    rows, why = [], ""
    for pipeline in PIPELINES:
        for server in runs.servers("workers"):
            fit, reason = fit_of(runs, server, pipeline)
            why = why or reason
            if fit:
                bands = {name: " to ".join(show(end) for end in fit.bands[name])
                         for name in ("sigma", "kappa")}
                rows.append({"server": f"{NAMES[server]}, pipeline {pipeline}",
                             "sigma": f"{show(fit.sigma)} ({bands['sigma']})",
                             "kappa": f"{show(fit.kappa)} ({bands['kappa']})",
                             "peak at workers": "beyond" if fit.peak_at > 1000
                             else show(fit.peak_at, 1)})
    if not rows:
        counts = sorted(set(frame["workers"].astype(int)))
        return Text(f"The Universal Scalability Law over workers is not fitted: {why}, and the "
                    f"numbers of workers here are {' and '.join(map(str, counts))}.")
    return Table("The Universal Scalability Law over workers", pd.DataFrame(rows),
                 "Of up to half as many workers as cores, so that the load has its own; in "
                 "brackets bands of 95 %.")


def plots_of_open(runs):
    frame = runs.part("workers")
    if frame.empty:
        return []
    found = []
    for workers in sorted(set(frame["workers"].astype(int))):
        for metric, title in (("p50_us", "median"), ("p99_us", "99th percentile")):
            series = {}
            for server in runs.servers("workers"):
                rows = frame[(frame["server"] == server) & (frame["workers"] == workers)
                             & (frame["kind"] == "open")]
                latency = rows[[f"get_{metric}", f"set_{metric}"]].max(axis=1) / 1000
                by = latency.groupby(rows["share"]).median()
                rates = rows.groupby("share")["rate"].median()
                if len(by):
                    series[server] = {"label": NAMES[server], "x": list(rates), "y": list(by)}
            if series:
                found.append(Plot(f"Open loop, {named(workers)}: {title} of latency",
                                  plots.lines(series, "operations/s that were due", "ms",
                                              log_y=True, zero=False),
                                  "Counted from the time that an operation was due."))
    return found


def claims(runs, cores):
    def best(server, workers, pipeline):
        return runs.median("workers", server, f"{named(workers)}, pipeline {pipeline}", "ops_s")

    # More of them share cores with the load.
    found, most = [], max(one for one in worker_counts(cores) if one <= max(2, cores // 2))
    gains = {server: {pipeline: ratio(best(server, most, pipeline), best(server, 1, pipeline))
                      for pipeline in PIPELINES} for server in PEERS}
    told = "; ".join(f"{NAMES[server]} " + ", ".join(
        f"{show(value, 2)} at pipeline {pipeline}" for pipeline, value in values.items())
        for server, values in gains.items())
    kvasir = gains["kvasir"][1]
    found.append(Claim(
        f"{most} workers give more throughput than one.", "Kvasir's own claim",
        UNMEASURED if kvasir is None else judged(kvasir > 1.05),
        f"Throughput with {most} to that with 1: {told}.", show(kvasir, 2)))
    return found


DIFFERENCES = [
    ("No study measured this.", "It asks of Kvasir what study 003 asked of Redis: the same law, "
     "over workers instead of clients."),
    ("A process per core makes the load.", "Up to half of the cores; beyond half as many workers "
     "the load is the bound."),
]
